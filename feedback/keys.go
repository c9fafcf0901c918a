package feedback

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Key is a key of a policy. Group files, the API, the command line, stories, the model and the
// simulation know a policy by its keys.
type Key struct {
	Name string
	// Default, Values and Meaning are for people: what a group file without the key has, what it
	// may have, and half a sentence about what that does.
	Default, Values, Meaning string
	// Of returns the key's field: a *bool, a *int, a *time.Duration or a pointer to a policy of its
	// own type.
	Of func(*Policy) any
	// Least and Most bound a number, or a duration in nanoseconds.
	Least, Most int
	// Never says that a duration may be 0 as well, and what that means: "never".
	Never string
	// Repairs says that the key has no effect with repair: off.
	Repairs bool
	// Quorum says that the key has no effect with ack: all.
	Quorum bool
	// Bytes says that a number is a size.
	Bytes bool
}

const (
	// MinSilentAfter is a few periods of the timer that looks for silent receivers (TimerPeriod),
	// and is longer than the time in which a loaded host answers.
	MinSilentAfter = 10 * time.Millisecond
	// maxSilentAfter is much longer than the time after which any source gives up.
	maxSilentAfter = time.Hour
	// minCNPInterval is shorter than the interval of any NIC. maxCNPInterval is so long that a
	// source hardly slows down.
	minCNPInterval = time.Microsecond
	maxCNPInterval = 100 * time.Millisecond
	// MaxRepairWindow is what the packet memory of one thread may hold at most, with a default path
	// MTU; the caller refuses a window that does not fit into the memory that it has.
	MaxRepairWindow   = 1 << 16
	maxRepairAttempts = 100
	// minRepairTimer is about a round trip in one rack: the timers are looked at less often
	// (RepairPeriod). maxRepairTimer is longer than a source's timeout should be.
	minRepairTimer = 20 * time.Microsecond
	maxRepairTimer = time.Second
)

// Keys are the keys of a policy, in the order in which they are written. No key of a running group
// can change.
var Keys = []Key{
	{Name: "ack", Default: "all", Values: "all, or quorum N", Of: func(p *Policy) any { return &p.Ack },
		Meaning: "how many receivers must have a packet before the source hears that it arrived"},
	{Name: "nak", Default: "hold", Values: "hold or lower", Of: func(p *Policy) any { return &p.Nak },
		Meaning: "when the source hears of a loss"},
	{Name: "on-fatal", Default: "fail; with a quorum evict", Values: "fail or evict", Of: func(p *Policy) any { return &p.OnFatal },
		Meaning: "whether a receiver's fatal NAK ends the source's QP, or the receiver leaves"},
	{Name: "silent-after", Default: "0", Values: "duration, 10ms to 1h, or 0", Of: func(p *Policy) any { return &p.SilentAfter },
		Least: int(MinSilentAfter), Most: int(maxSilentAfter), Never: "never",
		Meaning: "how long a receiver may make no progress; 0: for ever"},
	{Name: "evict", Default: "false", Values: "true or false", Of: func(p *Policy) any { return &p.Evict },
		Meaning: "whether a silent receiver leaves the group"},
	{Name: "cnp", Default: "filter", Values: "filter or all", Of: func(p *Policy) any { return &p.CNP },
		Meaning: "which congestion notifications the source hears"},
	{Name: "cnp-interval", Default: "0", Values: "duration, 1us to 100ms, or 0", Of: func(p *Policy) any { return &p.CNPInterval },
		Least: int(minCNPInterval), Most: int(maxCNPInterval), Never: "no limit",
		Meaning: "the least time between two of them; 0: what the receiver's NIC keeps"},
	{Name: "credits", Default: "unlimited", Values: "unlimited or merge", Of: func(p *Policy) any { return &p.Credits },
		Meaning: "merge: the source gets the fewest credits that a receiver has"},
	{Name: KeySourceSwitch, Default: "guard", Values: "guard or force", Of: func(p *Policy) any { return &p.Switch },
		Meaning: "force: another member may become the source before all have everything of the old one"},
	{Name: KeyRepair, Default: "local; off where the box has no memory for it", Values: "off or local", Of: func(p *Policy) any { return &p.Repair },
		Meaning: "local: the box sends again what a receiver lost; off: the source does"},
	{Name: KeyOnSlow, Default: "wait", Values: "wait or go-on", Of: func(p *Policy) any { return &p.OnSlow }, Repairs: true, Quorum: true,
		Meaning: "wait: a quorum's source gets no further ahead of a slow receiver than repair reaches"},
	{Name: "repair-window", Default: strconv.Itoa(DefaultRepairWindow), Values: "packets, 1 to 65536", Of: func(p *Policy) any { return &p.RepairWindow },
		Least: 1, Most: MaxRepairWindow, Repairs: true,
		Meaning: "how many packets are kept for that"},
	{Name: KeyRepairBytes, Default: "what repair-window needs", Values: "size (KiB, MiB)", Of: func(p *Policy) any { return &p.RepairBytes },
		Least: 0, Most: math.MaxInt, Repairs: true, Bytes: true,
		Meaning: "how much memory they may take"},
	{Name: "repair-attempts", Default: strconv.Itoa(DefaultRepairAttempts), Values: "1 to 100", Of: func(p *Policy) any { return &p.RepairAttempts },
		Least: 1, Most: maxRepairAttempts, Repairs: true,
		Meaning: "how often a packet is sent again without progress before the source has to help"},
	{Name: KeyRepairTimerFloor, Default: "50us", Values: "duration, 20us to 1s", Of: func(p *Policy) any { return &p.RepairTimerFloor },
		Least: int(minRepairTimer), Most: int(maxRepairTimer), Repairs: true,
		Meaning: "the least time after which an unanswered packet is sent again"},
	{Name: KeyRepairTimerCap, Default: "16ms", Values: "duration, 20us to 1s", Of: func(p *Policy) any { return &p.RepairTimerCap },
		Least: int(minRepairTimer), Most: int(maxRepairTimer), Repairs: true,
		Meaning: "the greatest"},
}

// Names of keys that depend on other values, or that some groups cannot have.
const (
	KeySourceSwitch     = "source-switch"
	KeyRepair           = "repair"
	KeyOnSlow           = "on-slow"
	KeyRepairBytes      = "repair-bytes"
	KeyRepairTimerFloor = "repair-timer-floor"
	KeyRepairTimerCap   = "repair-timer-cap"
)

// Set sets the key from a text. The error is what follows the name of the key in a sentence.
func (k *Key) Set(p *Policy, text string) (err error) {
	switch field := k.Of(p).(type) {
	case *bool:
		if *field = text == "true"; !*field && text != "false" {
			err = fmt.Errorf("%q is neither true nor false", text)
		}
	case *int:
		*field, err = strconv.Atoi(text)
		if err != nil || *field < k.Least || *field > k.Most {
			err = fmt.Errorf("%q is not a number from %d to %d", text, k.Least, k.Most)
		}
	case *time.Duration:
		*field, err = time.ParseDuration(text)
		zero := *field == 0 && k.Never != ""
		if err != nil || !zero && (*field < time.Duration(k.Least) || *field > time.Duration(k.Most)) {
			err = k.noDuration(text)
		}
	case word:
		err = field.read(text)
	}
	return err
}

// noDuration refuses what is not between the bounds. It proposes a value with the unit of the
// lowest one, as a rule.
func (k *Key) noDuration(text string) error {
	least, most := time.Duration(k.Least), time.Duration(k.Most)
	advice := "write one such as " + short(20*least)
	if k.Never != "" {
		advice += ", or 0 for " + k.Never
	}
	return fmt.Errorf("%q is not a time from %s to %s; %s", text, short(least), short(most), advice)
}

// short is a duration without the parts that are 0, in ASCII.
func short(d time.Duration) string {
	s := strings.ReplaceAll(d.String(), "µ", "u")
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// Text returns the key's value, as Set takes it.
func (k *Key) Text(p Policy) string { return fmt.Sprint(k.Value(p)) }

// Counts reports whether the key has an effect with the other keys of a policy.
func (k *Key) Counts(p Policy) bool {
	return (!k.Repairs || p.Repair != RepairOff) && (!k.Quorum || p.Ack != AckAll)
}

// Value returns the key's value as JSON has it: a bool, an int or a string. A size is in bytes, and
// a duration of 0 is "0".
func (k *Key) Value(p Policy) any {
	switch field := k.Of(&p).(type) {
	case *bool:
		return *field
	case *int:
		return *field
	case *time.Duration:
		if *field == 0 {
			return "0"
		}
		return field.String()
	default:
		return fmt.Sprint(field)
	}
}

// word is a policy that has words for values. read takes what String returns.
type word interface{ read(text string) error }

func (p *AckPolicy) read(text string) error {
	if text == "all" {
		*p = AckAll
		return nil
	}
	if text, ok := strings.CutPrefix(text, "quorum "); ok {
		if f, err := strconv.ParseUint(text, 10, 16); err == nil && f > 0 {
			*p = AckPolicy(f)
			return nil
		}
	}
	return fmt.Errorf("%q is neither all nor quorum N with N from 1", text)
}

func (p *NakPolicy) read(text string) error    { return oneOf(p, text, nakNames[:]) }
func (p *FatalPolicy) read(text string) error  { return oneOf(p, text, fatalNames[:]) }
func (p *CNPPolicy) read(text string) error    { return oneOf(p, text, cnpNames[:]) }
func (p *SwitchPolicy) read(text string) error { return oneOf(p, text, switchNames[:]) }
func (p *CreditPolicy) read(text string) error { return oneOf(p, text, creditNames[:]) }
func (p *RepairPolicy) read(text string) error { return oneOf(p, text, repairNames[:]) }
func (p *SlowPolicy) read(text string) error   { return oneOf(p, text, slowNames[:]) }

func oneOf[P ~uint8](p *P, text string, names []string) error {
	i := slices.Index(names, text)
	if i < 0 {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(names, ", "))
	}
	*p = P(i)
	return nil
}
