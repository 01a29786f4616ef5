//! A map from patterns to values. A pattern is a name, `prefix*` or `*`.
//!
//! Keeps true: finds the same as [`asp_edge::names::specificity`], most specific first, with one look-up for the name
//! and one for each distinct prefix length, however many patterns there are.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use asp_edge::names::Pattern;

/// Values by pattern.
#[derive(Clone, Debug)]
pub struct Patterns<T> {
    exact: HashMap<String, T>,
    prefixes: HashMap<String, T>,
    /// Lengths of the prefixes, longest first.
    lengths: BTreeSet<Reverse<usize>>,
}

impl<T> Default for Patterns<T> {
    fn default() -> Patterns<T> {
        Patterns { exact: HashMap::new(), prefixes: HashMap::new(), lengths: BTreeSet::new() }
    }
}

impl<T> Patterns<T> {
    /// Returns the value of a pattern; inserts one if there is none.
    pub fn entry(&mut self, pattern: &str, make: impl FnOnce() -> T) -> &mut T {
        match Pattern::read(pattern) {
            Pattern::Exact(name) => self.exact.entry(name.to_owned()).or_insert_with(make),
            Pattern::Prefix(prefix) => {
                self.lengths.insert(Reverse(prefix.len()));
                self.prefixes.entry(prefix.to_owned()).or_insert_with(make)
            }
        }
    }

    /// Returns the values of patterns that match `name`, the most specific first.
    pub fn naming<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a T> + use<'a, 'n, T> {
        let prefixes = self.lengths.range(Reverse(name.len())..);
        let by_prefix = prefixes.filter_map(|Reverse(length)| self.prefixes.get(name.get(..*length)?));
        self.exact.get(name).into_iter().chain(by_prefix)
    }
}

#[cfg(test)]
mod tests {
    use asp_edge::names;

    use super::*;

    #[test]
    fn it_finds_what_the_one_rule_of_patterns_finds_in_its_order() {
        let all = ["*", "a*", "ab*", "abc*", "é*", "ab", "abc", "é", "b*"];
        let mut patterns = Patterns::default();
        for pattern in all {
            patterns.entry(pattern, || pattern);
        }
        for name in ["abc", "ab", "abcd", "a", "é", "éa", "zz", ""] {
            let mut expected: Vec<_> = all
                .into_iter()
                .filter_map(|pattern| Some((names::specificity(pattern, name)?, pattern)))
                .collect();
            expected.sort_by_key(|(specificity, _)| Reverse(*specificity));
            let expected: Vec<_> = expected.into_iter().map(|(_, pattern)| pattern).collect();
            assert_eq!(patterns.naming(name).copied().collect::<Vec<_>>(), expected, "{name:?}");
        }
    }
}
