package captures

import (
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"strings"
	"time"
)

//go:embed testdata/*.gz
var files embed.FS

const (
	dir       = "testdata"
	pcapEnd   = ".pcap.gz"
	reportEnd = ".txt.gz"
)

// Frame is one captured frame, whole, from the destination MAC to the last byte before the Ethernet
// FCS.
type Frame struct {
	At   time.Time
	Data []byte
}

// Names lists the captures, sorted: "m_loss", "m_loss.tap2" and so on.
func Names() []string { return list(pcapEnd) }

// Reports lists what the tools printed: "read.client", "rpeer-6.1" and so on.
func Reports() []string { return list(reportEnd) }

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

// Report reads the tool output of that name.
func Report(name string) (string, error) {
	packed, err := files.Open(dir + "/" + name + reportEnd)
	if err != nil {
		return "", err
	}
	r, err := gzip.NewReader(packed)
	if err != nil {
		return "", fmt.Errorf("report %s: %w", name, err)
	}
	plain, err := io.ReadAll(r)
	return string(plain), err
}

func list(end string) (names []string) {
	entries, err := files.ReadDir(dir)
	if err != nil {
		panic(err) // the directory is part of the binary
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), end); ok {
			names = append(names, name)
		}
	}
	return names
}
