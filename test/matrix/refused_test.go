package matrix

import (
	"flag"
	"strings"
	"testing"

	"github.com/rocast/rocast/internal/matrix"
	"github.com/rocast/rocast/internal/testlab"
)

var update = flag.Bool("update", false, "write the table in docs/reference.md")

// docs/reference.md lists what is refused.
func TestReferenceHasWhatIsRefused(t *testing.T) {
	rows := [][]string{{"values", "what is said"}}
	for _, r := range matrix.Refused {
		var words []string
		for _, value := range strings.Fields(r.Of) {
			words = append(words, "`"+value+"`")
		}
		values := strings.Join(words, ", ")
		if last := rows[len(rows)-1]; last[1] == r.Why {
			last[0] += "; " + values
			continue
		}
		rows = append(rows, []string{values, r.Why})
	}
	testlab.Table(t, "../../docs/reference.md", "## What does not go together", *update, rows...)
}

// A group whose values do not go together is refused at once, with the sentence of the declaration,
// and nothing of it stays.
func TestRefusedGroupsAreRefused(t *testing.T) {
	for _, rule := range matrix.Refused {
		if !matrix.RunsAt(rule.Of, matrix.Namespaces) {
			continue
		}
		t.Run(rule.Of, func(t *testing.T) {
			c, err := matrix.Parse(rule.Of)
			if err != nil {
				t.Fatal(err)
			}
			r := &run{lab: newLab(t, c), c: c}
			r.cast()
			_, err = r.boxes[0].Client().CreateGroup(t.Context(), []byte(text(c, r.members[0].sees, r.members)))
			if err == nil || !strings.Contains(err.Error(), rule.Why) {
				t.Errorf("%v\nwant %s", err, rule.Why)
			}
			if g, err := r.boxes[0].Client().Groups(t.Context()); err != nil || len(g.Groups) != 0 {
				t.Errorf("%+v, %v", g.Groups, err)
			}
		})
	}
}
