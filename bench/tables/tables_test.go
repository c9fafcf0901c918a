package tables

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var (
	columns = []string{"bytes", "", "us"}
	rows    = [][]string{{"64", "group", "5"}, {"4096", "group", "50"}, {"4096", "a, chain", "60"}}
)

// What a page shows of a table are the wanted columns, in their order, of the wanted rows. A column
// that the table lacks is a mistake of the program.
func TestShorten(t *testing.T) {
	long := func(row []string) bool { return row[0] == "4096" }
	b := Shorten("x.csv", columns, rows, []string{"us", "bytes"}, long)
	if want := (&Brief{File: "x.csv", Columns: []string{"us", "bytes"}, Rows: [][]string{{"50", "4096"}, {"60", "4096"}}}); !reflect.DeepEqual(b, want) {
		t.Errorf("%+v", b)
	}
	twice := []string{"us", "us", "us"}
	if b := Shorten("x.csv", twice, rows, nil, long); !reflect.DeepEqual(b, &Brief{File: "x.csv", Columns: twice, Rows: rows[1:]}) {
		t.Errorf("%+v", b)
	}
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, `x.csv has no column "ms"`) {
			t.Error(got)
		}
	}()
	Shorten("x.csv", columns, rows, []string{"ms"}, long)
}

// The whole table is in the file; a page shows its part and names the file. Nothing is shown of a
// table without rows.
func TestWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.csv")
	if err := WriteCSV(file, columns, rows); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "bytes,,us\n64,group,5\n4096,group,50\n4096,\"a, chain\",60\n" {
		t.Errorf("%q, %v", text, err)
	}
	if err := WriteCSV(filepath.Join(file, "y.csv"), columns, rows); err == nil {
		t.Error("a file was written below a file")
	}
	for want, b := range map[string]*Brief{
		"| us |\n| --- |\n| 5 |\n\nThe whole table, 3 rows: [x.csv](folder/x.csv)\n\n": {File: "x.csv", Columns: []string{"us"}, Rows: [][]string{{"5"}}},
		"The whole table, 3 rows: [y.csv](folder/y.csv)\n\n":                           {File: "y.csv", Columns: []string{"us"}},
	} {
		var text strings.Builder
		if b.Write(&text, "folder", len(rows)); text.String() != want {
			t.Errorf("%q, want %q", text.String(), want)
		}
	}
}
