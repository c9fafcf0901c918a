package captures

import (
	"embed"
	"fmt"
	"strings"
	"time"
)

//go:embed testdata/*.pcap.gz
var files embed.FS

const (
	dir     = "testdata"
	pcapEnd = ".pcap.gz"
)

// Frame is one captured frame, whole, from the destination MAC to the last byte before the Ethernet
// FCS.
type Frame struct {
	At   time.Time
	Data []byte
}

// Names lists the captures, sorted: "m_loss", "m_odd" and so on.
func Names() (names []string) {
	entries, err := files.ReadDir(dir)
	if err != nil {
		panic(err) // the directory is part of the binary
	}
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), pcapEnd))
	}
	return names
}

// Frames reads the capture of that name. The caller owns the frames.
func Frames(name string) ([]Frame, error) {
	packed, err := files.Open(dir + "/" + name + pcapEnd)
	if err != nil {
		return nil, err
	}
	frames, err := readPcap(packed)
	if err != nil {
		return nil, fmt.Errorf("capture %s: %w", name, err)
	}
	return frames, nil
}
