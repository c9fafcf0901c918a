package groupfile

import (
	"strconv"
	"strings"
	"time"

	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

const (
	// MinSilentAfter is a few periods of the timer that looks for silent receivers
	// (feedback.TimerPeriod), and is longer than the time in which a loaded host answers.
	MinSilentAfter = 10 * time.Millisecond
	// maxSilentAfter is much longer than the time after which any source gives up.
	maxSilentAfter = time.Hour
	// minCNPInterval is shorter than the interval of any NIC. maxCNPInterval is so long that a
	// source hardly slows down.
	minCNPInterval = time.Microsecond
	maxCNPInterval = 100 * time.Millisecond
	// maxRepairWindow is what the packet memory of one thread may hold at most, with a default path
	// MTU; the data path refuses a window that does not fit into the memory that it has.
	maxRepairWindow   = 1 << 16
	maxRepairAttempts = 100
	// maxRepairBytes is what maxRepairWindow takes with the largest path MTU.
	maxRepairBytes = maxRepairWindow * 2 * mft.BufferBytes
	// minRepairTimer is about a round trip in one rack: the timers are looked at less often
	// (feedback.RepairPeriod). maxRepairTimer is longer than a source's timeout should be.
	minRepairTimer = 20 * time.Microsecond
	maxRepairTimer = time.Second
)

// SourceSwitch is the key of feedback.Policy.Switch.
const SourceSwitch = "source-switch"

// PolicyFields returns the keys of a merging policy. docs/merging.md explains the keys to users.
// lines gets the line of each key that is read.
func PolicyFields(policy *feedback.Policy, lines map[string]int) []yamldoc.Field {
	return noteLines(lines, []yamldoc.Field{
		{Key: "ack", Set: yamldoc.Into(&policy.Ack, ack)},
		{Key: "nak", Set: yamldoc.Into(&policy.Nak, choice(feedback.ParseNak))},
		{Key: "on-fatal", Set: yamldoc.Into(&policy.OnFatal, choice(feedback.ParseFatal))},
		{Key: "silent-after", Set: yamldoc.Into(&policy.SilentAfter, silentAfter)},
		{Key: "evict", Set: yamldoc.Into(&policy.Evict, yamldoc.Value.Bool)},
		{Key: "cnp", Set: yamldoc.Into(&policy.CNP, choice(feedback.ParseCNP))},
		{Key: "cnp-interval", Set: yamldoc.Into(&policy.CNPInterval, cnpInterval)},
		{Key: "credits", Set: yamldoc.Into(&policy.Credits, choice(feedback.ParseCredits))},
		{Key: "repair", Set: yamldoc.Into(&policy.Repair, choice(feedback.ParseRepair))},
		{Key: "repair-window", Set: yamldoc.Into(&policy.RepairWindow, count(maxRepairWindow))},
		{Key: "repair-bytes", Set: yamldoc.Into(&policy.RepairBytes, repairBytes)},
		{Key: "repair-attempts", Set: yamldoc.Into(&policy.RepairAttempts, count(maxRepairAttempts))},
		{Key: "repair-timer-floor", Set: yamldoc.Into(&policy.RepairTimerFloor, repairTimer)},
		{Key: "repair-timer-cap", Set: yamldoc.Into(&policy.RepairTimerCap, repairTimer)},
		{Key: "speak", Gone: "repair: local, which is the default, sends a packet again that a silent receiver lacks; remove the key"},
		{Key: SourceSwitch, Set: yamldoc.Into(&policy.Switch, choice(feedback.ParseSwitch))},
	})
}

func ack(v yamldoc.Value) (feedback.AckPolicy, error) {
	if text, err := v.Text(); err == nil {
		if err := v.Decimal(strings.TrimPrefix(text, "quorum ")); err != nil {
			return 0, err
		}
	}
	return choice(feedback.ParseAck)(v)
}

// Zero means never, or no limit.
var (
	silentAfter = orZero(MinSilentAfter, maxSilentAfter, "from 10ms to 1h; write one such as 200ms, or 0 for never")
	cnpInterval = orZero(minCNPInterval, maxCNPInterval, "from 1us to 100ms; write one such as 50us, or 0 for no "+
		"limit")
	repairTimer = duration(minRepairTimer, maxRepairTimer, "from 20us to 1s; write one such as 1ms")
)

// A group's goodput is looked at several times in the shortest time.
var degradedAfter = orZero(time.Second, time.Hour, "from 1s to 1h; write one such as 3s, or 0 for never")

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

// duration accepts times from shortest to longest. limits states these bounds in the error message.
func duration(shortest, longest time.Duration, limits string) func(yamldoc.Value) (time.Duration, error) {
	return func(v yamldoc.Value) (time.Duration, error) {
		text, err := v.Text()
		if err == nil {
			err = v.Decimal(text)
		}
		if err != nil {
			return 0, err
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < shortest || d > longest {
			return 0, v.Errorf("%q is not a time %s", text, limits)
		}
		return d, nil
	}
}

// orZero accepts 0 too.
func orZero(shortest, longest time.Duration, limits string) func(yamldoc.Value) (time.Duration, error) {
	bounded := duration(shortest, longest, limits)
	return func(v yamldoc.Value) (time.Duration, error) {
		text, _ := v.Text() // bounded has the error
		if d, err := time.ParseDuration(text); err == nil && d == 0 && v.Decimal(text) == nil {
			return 0, nil
		}
		return bounded(v)
	}
}

// count accepts whole numbers from 1 to most.
func count(most uint64) func(yamldoc.Value) (int, error) {
	return func(v yamldoc.Value) (int, error) {
		n, err := v.UintFrom(1, most)
		return int(n), err
	}
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
	return checkRepair(p, lines, pathMTU)
}

// repairBounds are the keys of the bounds of repair.
var repairBounds = [...]string{"repair-window", "repair-bytes", "repair-attempts", "repair-timer-floor", "repair-timer-cap"}

// AsksForRepair says whether the file names repair or a bound of it. Without, its group has repair
// where the box has memory for it; with, the box must have the memory.
func (f *File) AsksForRepair() bool {
	return f.Policy.Repair != feedback.RepairOff && f.RepairLine() != 0
}

// RepairLine is the last line that is about repair; 0: there is none.
func (f *File) RepairLine() (line int) {
	line = f.Lines["repair"]
	for _, key := range repairBounds {
		line = max(line, f.Lines[key])
	}
	return line
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
		for _, key := range repairBounds {
			if line := lines[key]; line != 0 {
				return yamldoc.Errorf(line, "%s has no effect with repair: off; remove one of them", key)
			}
		}
		return nil
	}
	least, line := mft.PacketBytes(pathMTU), lines["repair-bytes"]
	if n := p.RepairBytes; line != 0 && n < least {
		return yamldoc.Errorf(line, "repair-bytes is %dKiB, and one packet of path MTU %d takes %dKiB; write "+
			"%dKiB or more", n>>10, pathMTU, least>>10, least>>10)
	}
	*p = WithRepair(*p, pathMTU)
	if floor, limit := p.RepairTimerFloor, p.RepairTimerCap; floor > limit {
		return yamldoc.Errorf(max(lines["repair-timer-floor"], lines["repair-timer-cap"]), "repair-timer-floor is %v and "+
			"repair-timer-cap is %v; write a floor that is not above the cap", floor, limit)
	}
	return nil
}
