package openapi

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rocast/rocast/ctl/api"
)

var update = flag.Bool("update", false, "write openapi.yaml")

// groupFile stands for the text of a group file.
type groupFile struct{}

// text stands for an answer that is no JSON.
type text struct{}

// lines stands for an answer that has a JSON document on each line.
type lines struct{ of any }

// operations says what each operation takes and answers. What they do is in the comment of package
// api.
var operations = []struct {
	name       string
	body       any // nil: none
	answer     any
	made       bool // the answer has status 201
	parameters []string
}{
	{name: "GET /v1/groups", answer: api.Groups{}},
	{name: "POST /v1/groups", body: groupFile{}, answer: api.Group{}, made: true},
	{name: "GET /v1/groups/{name}", answer: api.Group{}},
	{name: "PUT /v1/groups/{name}", body: groupFile{}, answer: api.Group{}},
	{name: "DELETE /v1/groups/{name}", answer: api.Removed{}},
	{name: "POST /v1/groups/{name}/ready", body: api.Confirmation{}, answer: api.Group{}},
	{name: "GET /v1/groups/{name}/regions", answer: api.Regions{}, parameters: []string{"from", "count"}},
	{name: "POST /v1/groups/{name}/regions", body: api.RegionChange{}, answer: api.Group{}},
	{name: "GET /v1/trees/{name}", answer: api.Tree{}},
	{name: "GET /v1/perftest", answer: api.Perftests{}},
	{name: "POST /v1/perftest", body: api.PerftestRequest{}, answer: api.Perftest{}, made: true},
	{name: "DELETE /v1/perftest/{groupIP}", answer: api.Removed{}},
	{name: "GET /v1/cm", answer: api.CMs{}},
	{name: "POST /v1/cm", body: api.CMRequest{}, answer: api.CM{}, made: true},
	{name: "DELETE /v1/cm/{groupIP}", answer: api.Removed{}},
	{name: "GET /v1/status", answer: api.Status{}},
	{name: "POST /v1/reload", answer: api.Reloaded{}},
	{name: "GET /v1/ports", answer: api.Ports{}},
	{name: "GET /v1/stats", answer: api.Stats{}},
	{name: "GET /v1/traffic", answer: api.Traffic{}},
	{name: "GET /v1/traffic/{name}", answer: api.Traffic{}},
	{name: "GET /v1/events", answer: api.Events{}, parameters: []string{"run", "seq", "group", "wait"}},
	{name: "GET /v1/capture", answer: lines{api.CaptureLine{}}, parameters: []string{"group", "kind", "sample", "snap"}},
	{name: "POST /v1/trace", body: api.TraceRequest{}, answer: api.Trace{}},
	{name: "GET /v1/log", answer: api.Log{}},
	{name: "PUT /v1/log", body: api.Log{}, answer: api.Log{}},
	{name: "GET /v1/features", answer: api.Features{}},
	{name: "GET /v1/version", answer: api.Version{}},
	{name: "GET /metrics", answer: text{}},
	{name: "GET /openapi.yaml", answer: text{}},
	{name: "GET /v1/branches/{name}", answer: api.Tree{}},
	{name: "PUT /v1/branches/{name}", body: api.Branch{}, answer: api.BranchAnswer{}},
	{name: "POST /v1/branches/{name}", answer: api.Told{}},
	{name: "DELETE /v1/branches/{name}", answer: api.Removed{}, parameters: []string{"version"}},
	{name: "POST /v1/hosts/{name}", body: api.HostRequest{}, answer: api.HostGroup{}, parameters: []string{"wait", "seen"}},
	{name: "DELETE /v1/hosts/{name}", answer: api.Removed{}, parameters: []string{"whole", "tell"}},
	{name: "POST /v1/edge", body: api.EdgeQuestion{}, answer: api.EdgeAnswer{}},
}

type object = map[string]any

// maker makes the schemas of the types that it meets.
type maker struct {
	schemas  object
	comments map[string]string // of types by name, of fields by type.field
}

func (m *maker) schema(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[api.Hex]():
		return object{"type": "string", "pattern": "^0x[0-9a-f]+$"}
	case t == reflect.TypeFor[netip.Addr]():
		return object{"type": "string"}
	case t == reflect.TypeFor[[]byte]():
		return object{"type": "string", "format": "byte"}
	case t == reflect.TypeFor[groupFile]():
		return object{"type": "string", "description": "a group file, in YAML"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return m.schema(t.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": m.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": m.schema(t.Elem())}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Struct:
		if _, known := m.schemas[t.Name()]; !known {
			m.schemas[t.Name()] = nil // a type may hold itself
			m.schemas[t.Name()] = m.structure(t)
		}
		return object{"$ref": "#/components/schemas/" + t.Name()}
	}
	return object{"type": "integer"}
}

func (m *maker) structure(t reflect.Type) object {
	properties, required := object{}, []string{}
	m.fields(t, properties, &required)
	s := object{"type": "object", "properties": properties, "additionalProperties": false}
	if text := m.comments[t.Name()]; text != "" {
		s["description"] = text
	}
	if slices.Sort(required); len(required) > 0 {
		s["required"] = required
	}
	return s
}

func (m *maker) fields(t reflect.Type, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, tagged := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && !tagged && name == "" {
			m.fields(f.Type, properties, required)
			continue
		}
		p := m.schema(f.Type)
		if text := m.comments[t.Name()+"."+f.Name]; text != "" {
			if _, is := p["$ref"]; is {
				p = object{"allOf": []any{p}} // a reference has no description of its own
			}
			p["description"] = text
		}
		properties[name] = p
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			*required = append(*required, name)
		}
	}
}

// comments reads what package api says about its types and their fields, and about itself.
func comments(t *testing.T) (all map[string]string, structs []string, ofPackage string) {
	t.Helper()
	all = map[string]string{}
	files, err := filepath.Glob("../api/*.go")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(name) == "doc.go" {
			ofPackage = file.Doc.Text()
		}
		for _, d := range file.Decls {
			d, is := d.(*ast.GenDecl)
			if !is || d.Tok != token.TYPE {
				continue
			}
			for _, spec := range d.Specs {
				of := spec.(*ast.TypeSpec)
				s, is := of.Type.(*ast.StructType)
				if !is {
					continue
				}
				if len(s.Fields.List) > 0 && s.Fields.List[0].Tag == nil && s.Fields.List[0].Names != nil {
					continue // it is never written as JSON
				}
				structs = append(structs, of.Name.Name)
				all[of.Name.Name] = oneLine(d.Doc.Text())
				for _, f := range s.Fields.List {
					for _, n := range f.Names {
						all[of.Name.Name+"."+n.Name] = oneLine(f.Doc.Text() + " " + f.Comment.Text())
					}
				}
			}
		}
	}
	return all, structs, ofPackage
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// sentences reads the list of paths in a comment: what each operation does, by method and path.
func sentences(comment string) map[string]string {
	all, last := map[string]string{}, ""
	line := regexp.MustCompile(`^\t([A-Z]+) +(/\S*) +(.*)$`)
	for l := range strings.SplitSeq(comment, "\n") {
		if found := line.FindStringSubmatch(l); found != nil {
			last = found[1] + " " + found[2]
			all[last] = found[3]
		} else if strings.HasPrefix(l, "\t") {
			all[last] += " " + strings.TrimSpace(l)
		}
	}
	return all
}

func description(t *testing.T) object {
	t.Helper()
	known, _, ofPackage := comments(t)
	does := sentences(ofPackage)
	m := &maker{schemas: object{}, comments: known}
	failure := object{"description": "a sentence that names what failed, and the mend", "content": object{"application/json": object{"schema": m.schema(reflect.TypeFor[api.ErrorBody]())}}}
	paths := object{}
	for _, o := range operations {
		method, path, _ := strings.Cut(o.name, " ")
		if does[o.name] == "" {
			t.Errorf("the comment of package api does not say what %s does", o.name)
		}
		answer := object{"description": "done"}
		switch of := o.answer.(type) {
		case text:
			answer["content"] = object{"text/plain": object{"schema": object{"type": "string"}}}
		case lines:
			answer["content"] = object{"application/x-ndjson": object{"schema": m.schema(reflect.TypeOf(of.of))}}
		default:
			answer["content"] = object{"application/json": object{"schema": m.schema(reflect.TypeOf(of))}}
		}
		status := "200"
		if o.made {
			status = "201"
		}
		operation := object{"summary": does[o.name], "responses": object{status: answer, "default": failure}}
		if o.body != nil {
			kind := "application/json"
			if _, is := o.body.(groupFile); is {
				kind = "application/yaml"
			}
			operation["requestBody"] = object{"required": true, "content": object{kind: object{"schema": m.schema(reflect.TypeOf(o.body))}}}
		}
		var parameters []any
		for _, found := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
			parameters = append(parameters, object{"name": found[1], "in": "path", "required": true, "schema": object{"type": "string"}})
		}
		for _, name := range o.parameters {
			parameters = append(parameters, object{"name": name, "in": "query", "schema": object{"type": "string"}})
		}
		if parameters != nil {
			operation["parameters"] = parameters
		}
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(method)] = operation
		delete(does, o.name)
	}
	for name := range does {
		t.Errorf("the comment of package api has %s, and the list of operations here has not", name)
	}
	return object{
		"openapi": "3.0.3",
		"info": object{"title": "rocastd", "version": "1", "description": "The API of rocastd, on its Unix socket, and over TCP with mutual TLS " +
			"(api: in rocastd.yaml). The paths with branches are for other boxes, those with hosts for programs on hosts (hosts: in rocastd.yaml)."},
		"paths": paths, "components": object{"schemas": m.schemas},
	}
}

// The file has every operation, type and field, and nothing else. -update writes it.
func TestTheDescriptionIsMadeOfTheTypes(t *testing.T) {
	want := bytes.NewBufferString("# Code generated by go test ./ctl/openapi -update from package api; DO NOT EDIT.\n")
	encoder := yaml.NewEncoder(want)
	encoder.SetIndent(2)
	if err := encoder.Encode(description(t)); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("openapi.yaml", want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		Document = want.Bytes()
	}
	if !bytes.Equal(Document, want.Bytes()) {
		t.Error("openapi.yaml is not what package api says; go test ./ctl/openapi -update writes it")
	}
}

// What the API has types for can be asked for.
func TestEveryTypeIsDescribed(t *testing.T) {
	described := description(t)["components"].(object)["schemas"].(object)
	_, structs, _ := comments(t)
	elsewhere := []string{"GroupSummary", "MemberID", "Reach", "EventMeaning", "PolicyKeys"} // parts of others; what rocast prints
	for _, name := range structs {
		if described[name] == nil && !slices.Contains(elsewhere, name) {
			t.Errorf("no operation takes or answers %s", name)
		}
	}
	if len(structs) < 40 {
		t.Errorf("only %v", structs)
	}
}

// Every reference leads to a schema.
func TestEveryReferenceIsThere(t *testing.T) {
	var document struct {
		Components struct{ Schemas object }
	}
	if err := yaml.Unmarshal(Document, &document); err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`#/components/schemas/(\w+)`).FindAllSubmatch(Document, -1) {
		if document.Components.Schemas[string(found[1])] == nil {
			t.Errorf("there is no %s", found[1])
		}
	}
}
