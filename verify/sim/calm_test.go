package sim

import (
	"testing"
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

// calm is a run without faults: 64 messages of 4 packets to three receivers, across the PSN wrap.
func calm() Scenario {
	l := Link{PicosPerByte: 800, Delay: 5 * time.Microsecond, QueueBytes: 256 << 10}
	s := Scenario{
		Seed: 1, MTUBytes: 256, Regions: 1, MemoryBytes: 64 * 1024,
		Hosts:   []Host{{ToSwitch: l, ToHost: l, SendPSN: 0xFFFFC0, Messages: messages(64), Outstanding: 16}},
		Timeout: 10, RetryCount: retryForEver, RNRRetry: retryForEver, Limit: 5 * time.Second,
	}
	for i := range 3 {
		s.Hosts = append(s.Hosts, Host{
			ToSwitch: l, ToHost: l, Receiver: true, RecvPSN: roce.PSN(0x1000 * i), Receives: 64, RNRTimer: 5,
		})
	}
	return s
}

// messages returns n messages of all kinds, of four packets each.
func messages(n int) (m []Message) {
	operations := []rnic.Operation{rnic.Write, rnic.WriteImm, rnic.Send, rnic.SendImm}
	for i := range n {
		m = append(m, Message{
			Op: operations[i%len(operations)], Bytes: 3*256 + 1 + i, Target: i * 1024, From: i * 5000, Imm: uint32(i),
		})
	}
	return m
}

// losing is calm with a loss rate on every link.
func losing(rate float64) Scenario {
	s := calm()
	s.eachLink(func(l *Link) { l.Loss = rate })
	return s
}

func play(t testing.TB, r *Runner, s Scenario) Result {
	t.Helper()
	result, err := r.Run(s)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func mustHold(t testing.TB, s Scenario) Result {
	t.Helper()
	var r Runner
	result, story, err := r.Replay(s, 40, nil)
	if err != nil {
		t.Fatal(err)
	}
	if result.Failure != nil {
		for _, line := range story {
			t.Log(line)
		}
		t.Fatalf("%v\n%v", result.Failure, &s)
	}
	return result
}
