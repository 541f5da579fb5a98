// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// main prints what Helm would send to a cluster, or with -write makes the manifest anew. Values are arguments, as for --set.
func main() {
	r := plain
	write := flag.Bool("write", false, "write "+manifestPath)
	flag.StringVar(&r.name, "name", r.name, "name of the release")
	flag.StringVar(&r.namespace, "namespace", r.namespace, "its namespace")
	flag.Parse()
	r.set = append(r.set, flag.Args()...)
	text, err := r.manifest()
	if err == nil && *write {
		err = errors.Join(os.MkdirAll(filepath.Dir(manifestPath), 0o755), os.WriteFile(manifestPath, []byte(header+text), 0o644))
		if err == nil {
			err = writeSums()
		}
	} else if err == nil {
		fmt.Print(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

// sumsPath has the sums of the chart's files and of the manifest that was made of them, as sha256sum writes them, by their paths in the
// repository: whether the manifest is current can be told without Helm's libraries, which take longer to build than CI has for it.
const sumsPath = "../helm/shunt.sum"

func writeSums() error {
	var b strings.Builder
	sum := func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(&b, "%x  deploy/%s\n", sha256.Sum256(text), strings.TrimPrefix(filepath.ToSlash(path), "../"))
		return err
	}
	if err := errors.Join(filepath.WalkDir(chartDir, sum), filepath.WalkDir(manifestPath, sum)); err != nil {
		return err
	}
	return os.WriteFile(sumsPath, []byte(b.String()), 0o644)
}
