package softroce

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rocast/rocast/test/softroce/image"
)

// kvmTrial bounds the trial boot. With KVM a guest boots in about a second.
const kvmTrial = 5 * time.Second

var acceleration struct {
	sync.Mutex
	kind, why string
}

// accelerator is "kvm" if our guest boots with KVM, and otherwise "tcg", which is software
// emulation. why is the reason. A /dev/kvm that can be opened proves nothing: in a virtual machine
// without nested virtualization a guest may hang at its first instruction.
func accelerator(ctx context.Context, guestImage image.Image) (kind, why string) {
	acceleration.Lock()
	defer acceleration.Unlock()
	if acceleration.kind == "" {
		acceleration.kind, acceleration.why = findAccelerator(ctx, guestImage)
	}
	return acceleration.kind, acceleration.why
}

func findAccelerator(ctx context.Context, guestImage image.Image) (kind, why string) {
	if kind := os.Getenv("ROCAST_ACCEL"); kind != "" {
		return kind, "ROCAST_ACCEL says so"
	}
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return "tcg", err.Error()
	}
	device.Close()
	if err := tryKVM(ctx, guestImage); err != nil {
		return "tcg", err.Error()
	}
	return "kvm", "a guest booted"
}

func tryKVM(ctx context.Context, guestImage image.Image) error {
	ctx, cancel := context.WithTimeout(ctx, kvmTrial)
	defer cancel()
	m, err := powerOn(guestImage, "kvm", hardware{memoryMiB: guestMemoryMiB, cpus: 1})
	if err != nil {
		return err
	}
	defer m.powerOff()
	if _, err := m.control.Hello(ctx); err != nil {
		return fmt.Errorf("/dev/kvm opens, but no guest booted within %v: %w", kvmTrial, err)
	}
	return nil
}
