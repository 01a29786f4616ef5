// Renders a chart without a cluster, as `helm template asp CHART --namespace asp --values FILE` does, for scripts/check-k8s: Go's templates
// with sprig, and the functions of Helm's engine that k8s/chart uses. Helm itself takes minutes to build.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"gopkg.in/yaml.v3"
)

type values = map[string]any

func read(file string) (values, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var found values
	if err := yaml.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return found, nil
}

// Overrides the chart's values by those given, map by map.
func merged(base, given values) values {
	made := values{}
	for name, value := range base {
		made[name] = value
	}
	for name, value := range given {
		before, isMap := made[name].(values)
		if own, ok := value.(values); ok && isMap {
			made[name] = merged(before, own)
		} else {
			made[name] = value
		}
	}
	return made
}

func functions(all *template.Template) template.FuncMap {
	made := sprig.TxtFuncMap()
	made["include"] = func(name string, data any) (string, error) {
		var text strings.Builder
		err := all.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	made["required"] = func(message string, value any) (any, error) {
		if value == nil || fmt.Sprint(value) == "" || fmt.Sprint(value) == "[]" {
			return nil, fmt.Errorf("required: %s", message)
		}
		return value, nil
	}
	// There is no cluster to look into.
	made["lookup"] = func(string, string, string, string) values { return values{} }
	return made
}

func render(chart, file string) (string, error) {
	about, err := read(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		return "", err
	}
	base, err := read(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return "", err
	}
	given, err := read(file)
	if err != nil {
		return "", err
	}
	folder := filepath.Base(chart) + "/templates"
	all := template.New("chart").Option("missingkey=zero")
	all.Funcs(functions(all))
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*.yaml"))
	if err != nil {
		return "", err
	}
	sort.Strings(paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		if _, err := all.New(folder + "/" + filepath.Base(path)).Parse(string(text)); err != nil {
			return "", err
		}
	}
	data := values{
		"Values":   merged(base, given),
		"Chart":    values{"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]},
		"Release":  values{"Name": "asp", "Namespace": "asp", "IsInstall": true, "Revision": 1},
		"Template": values{"BasePath": folder},
	}
	var text strings.Builder
	for _, path := range paths {
		name := folder + "/" + filepath.Base(path)
		fmt.Fprintf(&text, "---\n# Source: %s\n", name)
		if err := all.ExecuteTemplate(&text, name, data); err != nil {
			return "", err
		}
		text.WriteString("\n")
	}
	return text.String(), nil
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: render CHART VALUES")
		os.Exit(64)
	}
	text, err := render(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(text)
}
