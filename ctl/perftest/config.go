package perftest

import (
	"errors"

	"github.com/rocast/rocast/ctl/groupip"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
)

// Config describes one group IP on which perftest clients are served. The receivers are the
// addresses of perftest's servers and of their RDMA devices, and the port is their TCP port; 0:
// DefaultPort.
type Config = groupip.Config

// check fills in defaults. Its error is a sentence that tells the operator which value is wrong.
func check(c *Config) error {
	if c.Port == 0 {
		c.Port = DefaultPort
	}
	if c.Policy.Ack != feedback.AckAll {
		return errors.New("ack is a quorum, and perftest waits for every receiver; leave ack out")
	}
	return c.Check()
}

// ReadConfig reads one item of the daemon's config, which may have the policy keys of a group file:
//
//	perftest:
//	  - {groupIP: 10.77.0.100, receivers: [10.77.0.2, 10.77.0.3], port: 18515, allow: [10.77.0.0/24], repair: off}
func ReadConfig(v yamldoc.Value) (Config, error) {
	var c Config
	err := c.Read(v, "perftest's servers")
	if err == nil {
		if mistake := check(&c); mistake != nil {
			err = v.Errorf("is refused: %v", mistake)
		}
	}
	return c, err
}
