//! Suggestion of the known name closest to a mistyped one.

/// Maximum length of a compared name: the cost grows with the square of the length.
const MAX_LENGTH: usize = 64;
/// Maximum number of edits between similar names.
const MAX_EDITS: usize = 3;

/// Returns the first of the names with the fewest edits from `wanted`; at most a third of the characters may differ.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = wanted.to_lowercase().chars().collect();
    if wanted.len() > MAX_LENGTH {
        return None;
    }
    let bound = (wanted.len() / 3).clamp(1, MAX_EDITS);
    let mut best: Option<(usize, &str)> = None;
    for name in known.into_iter().filter(|name| name.len() <= 4 * MAX_LENGTH) {
        let candidate: Vec<char> = name.to_lowercase().chars().collect();
        if candidate.len().abs_diff(wanted.len()) > bound {
            continue;
        }
        let edits = distance(&wanted, &candidate);
        if edits <= bound && best.is_none_or(|(fewest, _)| edits < fewest) {
            best = Some((edits, name));
        }
    }
    best.map(|(_, name)| name)
}

/// Returns the number of insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    let mut left_of_last = None;
    for (row, a) in from.iter().enumerate() {
        let mut current = Vec::with_capacity(last.len());
        current.push(row + 1);
        let mut left_of = None;
        for (column, b) in to.iter().enumerate() {
            let at = |line: &[usize], place: usize| line.get(place).copied().unwrap_or(usize::MAX / 2);
            let replaced = at(&last, column) + usize::from(a != b);
            let mut fewest = replaced.min(at(&last, column + 1) + 1).min(at(&current, column) + 1);
            if left_of == Some(a) && left_of_last == Some(b) && column > 0 {
                fewest = fewest.min(at(&before_last, column - 1) + 1);
            }
            current.push(fewest);
            left_of = Some(b);
        }
        before_last = std::mem::replace(&mut last, current);
        left_of_last = Some(a);
    }
    last.last().copied().unwrap_or(from.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_finds_the_one_that_was_meant() {
        let known = ["cc.pay", "cc.pays", "clock", "echo", "shop"];
        for (wanted, expected) in [
            ("ecko", Some("echo")),
            ("ehco", Some("echo")),
            ("shoop", Some("shop")),
            ("Shop", Some("shop")),
            ("cc.payz", Some("cc.pay")),
            ("clokc", Some("clock")),
            ("billing", None),
            ("", None),
        ] {
            assert_eq!(nearest(wanted, known), expected, "{wanted}");
        }
        assert_eq!(nearest(&"e".repeat(65), ["e"]), None);
    }

    #[test]
    fn edits_are_counted_as_by_hand() {
        let of = |a: &str, b: &str| distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        for (a, b, edits) in [
            ("", "", 0),
            ("", "ab", 2),
            ("ab", "ba", 1),
            ("kitten", "sitting", 3),
            ("ca", "abc", 3),
            ("aab", "aba", 1),
        ] {
            assert_eq!((of(a, b), of(b, a)), (edits, edits), "{a} {b}");
        }
    }
}
