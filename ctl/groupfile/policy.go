package groupfile

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// maxRepairBytes is what the largest repair-window takes with the largest path MTU.
const maxRepairBytes = feedback.MaxRepairWindow * 2 * mft.BufferBytes

// PolicyFields returns the keys of a merging policy. docs/merging.md explains the keys to users.
// lines gets the line of each key that is read.
func PolicyFields(policy *feedback.Policy, lines map[string]int) (fields []yamldoc.Field) {
	for i := range feedback.Keys {
		k := &feedback.Keys[i]
		fields = append(fields, yamldoc.Field{Key: k.Name, Set: func(v yamldoc.Value) error { return setKey(k, policy, v) }})
	}
	fields = append(fields, yamldoc.Field{Key: "speak", Gone: "repair: local, which is the default, sends a packet again that a silent receiver lacks; remove the key"})
	return noteLines(lines, fields)
}

// setKey sets a key of a policy in the form that its type has in YAML.
func setKey(k *feedback.Key, policy *feedback.Policy, v yamldoc.Value) (err error) {
	switch field := k.Of(policy).(type) {
	case *bool:
		*field, err = v.Bool()
		return err
	case *int:
		if k.Bytes {
			*field, err = repairBytes(v)
			return err
		}
		n, err := v.UintFrom(uint64(k.Least), uint64(k.Most))
		*field = int(n)
		return err
	}
	text, err := v.Text()
	if err == nil {
		err = v.Decimal(strings.TrimPrefix(text, "quorum "))
	}
	if err != nil {
		return err
	}
	if err := k.Set(policy, text); err != nil {
		return v.Errorf("%v", err)
	}
	return nil
}

// keyText is the key's value, as a group file has it.
func keyText(k *feedback.Key, p feedback.Policy) string {
	if k.Bytes {
		return fmt.Sprintf("%dKiB", k.Value(p).(int)>>10)
	}
	return k.Text(p)
}

// degradedAfter reads a time. A group's goodput is looked at several times in the shortest one.
func degradedAfter(v yamldoc.Value) (time.Duration, error) {
	text, err := v.Text()
	if err == nil {
		err = v.Decimal(text)
	}
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d != 0 && (d < time.Second || d > time.Hour) {
		return 0, v.Errorf("%q is not a time from 1s to 1h; write one such as 3s, or 0 for never", text)
	}
	return d, nil
}

// percent reads a part in words such as 25%.
func percent(v yamldoc.Value) (int, error) {
	text, err := v.Text()
	if err != nil {
		return 0, err
	}
	if err := v.Decimal(text); err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil || !strings.HasSuffix(text, "%") || n < 0 || n > 100 {
		return 0, v.Errorf("%q is not a part from 0%% to 100%%; write one such as 25%%", text)
	}
	return n, nil
}

// repairBytes accepts sizes, and 0, which checkRepair refuses with the least size that a group may
// have.
func repairBytes(v yamldoc.Value) (int, error) {
	if text, err := v.Text(); err != nil || text == "0" {
		return 0, err
	}
	n, err := v.Size("")
	if err == nil && n > maxRepairBytes {
		err = v.Errorf("is above %dMiB, which the largest repair-window takes; write a smaller size", maxRepairBytes>>20)
	}
	return int(n), err
}

// CheckPolicy sets the defaults that depend on other keys, and refuses keys that have no effect.
// Repair has room for packets of pathMTU. lines are those of the keys that were read.
func CheckPolicy(p *feedback.Policy, lines map[string]int, pathMTU int) error {
	if lines["on-fatal"] == 0 && p.Ack != feedback.AckAll {
		p.OnFatal = feedback.FatalEvict // a quorum exists to continue without some receivers
	}
	if p.Evict && p.SilentAfter == 0 {
		return yamldoc.Errorf(lines["evict"], "evict has no effect without silent-after, which says when a "+
			"receiver counts as silent; add silent-after: 200ms, or remove evict")
	}
	if p.CNPInterval != 0 && p.CNP == feedback.CNPAll {
		return yamldoc.Errorf(lines["cnp-interval"], "cnp-interval has no effect with cnp: all, which passes "+
			"every notification; remove one of them")
	}
	if p.Ack == feedback.AckAll {
		for _, k := range feedback.Keys {
			if line := lines[k.Name]; k.Quorum && k.Text(*p) != k.Text(feedback.Policy{}) {
				return yamldoc.Errorf(line, "%s has no effect with ack: all; remove it, or write ack: quorum and how many have to acknowledge", k.Name)
			}
		}
	}
	return checkRepair(p, lines, pathMTU)
}

// AsksForRepair reports whether the file names repair or a bound of it. Without, its group has
// repair where the box has memory for it; with, the box must have the memory.
func (f *File) AsksForRepair() bool {
	return f.Policy.Repair != feedback.RepairOff && f.RepairLine() != 0
}

// RepairLine is the last line that is about repair; 0: there is none.
func (f *File) RepairLine() (line int) {
	line = f.Lines[feedback.KeyRepair]
	for _, k := range feedback.Keys {
		if k.Repairs {
			line = max(line, f.Lines[k.Name])
		}
	}
	return line
}

// needsRepair is why a group must not be without repair, or "". The source before is silent when
// another one takes over: nobody else can ask a receiver again whose last ACK was lost, or bring it
// what it lacks.
func needsRepair(p *feedback.Policy, senders int) string {
	switch {
	case p.Switch == feedback.SwitchForce:
		return "source-switch is force"
	case p.Ack != feedback.AckAll && senders > 1:
		return "ack is a quorum and several members may send"
	}
	return ""
}

func refuseOff(line int, why string) error {
	if why == "" {
		return nil
	}
	return yamldoc.Errorf(line, "%s, which needs repair, and repair is off; use repair: local", why)
}

// NeedsRepair returns why the group must not be without repair, or "".
func (f *File) NeedsRepair() string {
	senders := 0
	for _, m := range f.Members() {
		if m.Role != Receiver {
			senders++
		}
	}
	return needsRepair(&f.Policy, senders)
}

// CheckNoRepair refuses a file whose group is without repair and must not be: because the file says
// so, or because the box has no memory for it.
func (f *File) CheckNoRepair() error {
	why := f.NeedsRepair()
	if f.Policy.Repair == feedback.RepairOff || why == "" {
		return refuseOff(f.Lines[feedback.KeyRepair], why)
	}
	return yamldoc.Errorf(f.Lines["name"], "%s, which needs repair, and this box has no memory for that; write a larger repairMemory "+
		"into rocastd.yaml", why)
}

// WithRepair returns the policy with repair, for a group of this path MTU. Bounds that are 0 become
// their defaults.
func WithRepair(p feedback.Policy, pathMTU int) feedback.Policy {
	p.Repair = feedback.RepairLocal
	p = p.WithDefaults()
	if p.RepairBytes == 0 {
		p.RepairBytes = p.RepairWindow * mft.PacketBytes(pathMTU)
	}
	return p
}

// checkRepair refuses bounds of repair where there is none, and else fills in those that are left
// out.
func checkRepair(p *feedback.Policy, lines map[string]int, pathMTU int) error {
	if p.Repair == feedback.RepairOff {
		for _, k := range feedback.Keys {
			if line := lines[k.Name]; k.Repairs && line != 0 {
				return yamldoc.Errorf(line, "%s has no effect with repair: off; remove one of them", k.Name)
			}
		}
		return nil
	}
	least, line := mft.PacketBytes(pathMTU), lines[feedback.KeyRepairBytes]
	if n := p.RepairBytes; line != 0 && n < least {
		return yamldoc.Errorf(line, "repair-bytes is %dKiB, and one packet of path MTU %d takes %dKiB; write "+
			"%dKiB or more", n>>10, pathMTU, least>>10, least>>10)
	}
	*p = WithRepair(*p, pathMTU)
	if floor, limit := p.RepairTimerFloor, p.RepairTimerCap; floor > limit {
		return yamldoc.Errorf(max(lines[feedback.KeyRepairTimerFloor], lines[feedback.KeyRepairTimerCap]), "repair-timer-floor is %v and "+
			"repair-timer-cap is %v; write a floor that is not above the cap", floor, limit)
	}
	return nil
}
