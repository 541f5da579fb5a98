// SPDX-License-Identifier: Apache-2.0

package rules

// finish ends a list: labels become entries, ways that only lead on are cut short, entries that nothing reaches are left out.
func (f *flattener) finish() []Entry {
	entries := f.entries
	at := func(label int) int {
		if label < 0 {
			return label
		}
		return f.labels[label]
	}
	for i := range entries {
		e := &entries[i]
		switch e.Then {
		case Skip:
			e.To = at(e.To)
		case Call, ByMap:
			e.To, e.End = at(e.To), at(e.End)
			if e.Map != nil {
				e.Map.Return = at(e.Map.Return)
			}
		}
	}
	shorten(entries)
	entries = uncover(prune(entries))
	for before := -1; before != len(entries); { // what leads past entries that went may lead nowhere any more
		before = len(entries)
		shorten(entries)
		entries = prune(entries)
	}
	return entries
}

// ways calls visit for every place that an entry can lead to.
func (e *Entry) ways(i int, visit func(to *int)) {
	next := i + 1
	if len(e.When) > 0 || e.Then == Next {
		visit(&next)
	}
	switch e.Then {
	case Skip:
		visit(&e.To)
	case Call:
		visit(&e.To)
		visit(&e.End)
	case ByMap:
		visit(&e.To)
		visit(&e.End)
		visit(&e.Map.Return)
	}
}

// through says whether an entry only leads on.
func (e *Entry) through() bool {
	return len(e.When) == 0 && len(e.Do) == 0 && !e.boundary && e.Then == Skip
}

// idle says whether an entry does nothing with whoever satisfies it, nor with others.
func (e *Entry) idle() bool { return e.Then == Next && len(e.Do) == 0 && !e.boundary }

// shorten lets ways that lead to an entry that only leads on go where it leads. From the last entry to the first, so that a long run of entries that turn out
// to do nothing is seen at once.
func shorten(entries []Entry) {
	behind := make([]int, len(entries)+1) // the first entry from there on that is not idle
	behind[len(entries)] = len(entries)
	for i := len(entries) - 1; i >= 0; i-- {
		e := &entries[i]
		e.ways(i, func(to *int) {
			if *to >= 0 && *to < len(entries) && entries[*to].through() {
				*to = entries[*to].To
			}
		})
		// Skipping to the next entry that does anything is nothing else than going on.
		if e.Then == Skip && e.To > i && behind[e.To] == behind[i+1] && len(e.When) > 0 {
			e.Then, e.To = Next, 0
		}
		if behind[i] = i; e.idle() {
			behind[i] = behind[i+1]
		}
	}
}

// prune leaves out what nothing reaches and what does nothing.
func prune(entries []Entry) []Entry {
	reached := make([]bool, len(entries)+1)
	reached[0] = true
	for i := range entries {
		if reached[i] {
			entries[i].ways(i, func(to *int) {
				if *to >= 0 {
					reached[*to] = true
				}
			})
		}
	}
	kept := 0
	moved := make([]int, len(entries)+1)
	for i := range entries {
		moved[i] = kept
		e := &entries[i]
		idle := e.idle() || e.through() && e.To == i+1
		if reached[i] && !idle {
			kept++
		} else {
			reached[i] = false
		}
	}
	moved[len(entries)] = kept
	out := make([]Entry, 0, kept)
	for i, e := range entries {
		if !reached[i] {
			continue
		}
		e.ways(i, func(to *int) {
			if *to >= 0 {
				*to = moved[*to]
			}
		})
		out = append(out, e)
	}
	return out
}
