// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// root is the repository, seen from this package's folder.
const root = "../.."

// File is one file of the working tree.
type File struct {
	Path string // from the repository's root, with slashes
	Text []byte
}

// Generated says whether a tool wrote the file, by the line that the Go project reserves for that.
func (f File) Generated() bool {
	head, _, _ := bytes.Cut(f.Text, []byte("\npackage "))
	if len(head) > 4096 {
		head = head[:4096]
	}
	return bytes.Contains(head, []byte("Code generated ")) && bytes.Contains(head, []byte("DO NOT EDIT"))
}

// Vendored says whether others wrote the file.
func (f File) Vendored() bool {
	return strings.HasPrefix(f.Path, "bpf/third_party/") || strings.HasPrefix(f.Path, "LICENSES/")
}

// Lines is the number of lines.
func (f File) Lines() int { return bytes.Count(f.Text, []byte("\n")) }

// Text says whether the file is for people to read.
func (f File) IsText() bool { return !bytes.Contains(f.Text, []byte{0}) }

// Tree reads every file of the repository that git would not ignore. It reads .gitignore's folders
// itself, so that it works in an unpacked archive too.
func Tree() ([]File, error) {
	skip, err := ignoredFolders()
	if err != nil {
		return nil, err
	}
	var files []File
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(name, root+string(filepath.Separator)))
		if d.IsDir() {
			if skip[rel] {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || ignoredFile(d.Name()) {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		files = append(files, File{rel, text})
		return nil
	})
	return files, err
}

// ignoredFolders are git's own and the anchored ones of .gitignore ("/bin/").
func ignoredFolders() (map[string]bool, error) {
	text, err := os.ReadFile(filepath.Join(root, ".gitignore"))
	if err != nil {
		return nil, fmt.Errorf("reading the list of ignored folders: %w", err)
	}
	skip := map[string]bool{".git": true}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "/") && strings.HasSuffix(line, "/") {
			skip[strings.Trim(line, "/")] = true
		}
	}
	return skip, nil
}

// ignoredFile knows what compilers and test runs leave beside the sources.
func ignoredFile(name string) bool {
	switch path.Ext(name) {
	case ".test", ".prof", ".out":
		return true
	}
	return name == ".git" || name == "core"
}
