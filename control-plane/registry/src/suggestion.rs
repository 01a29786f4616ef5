//! Suggestion of the known name closest to a mistyped one.

/// Maximum length of a compared name: the cost grows with the square of the length.
const MAX_LENGTH: usize = 64;
/// Maximum number of edits between similar names.
const MAX_EDITS: usize = 3;

/// Returns the first of the names with the fewest edits from `wanted`; at most a third of the characters may differ.
/// Edits are insertions, deletions, replacements and swaps of neighbours.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    let length = wanted.chars().count();
    if length > MAX_LENGTH {
        return None;
    }
    let bound = (length / 3).clamp(1, MAX_EDITS);
    let edits = |name: &str| {
        let name = name.to_lowercase();
        let is_comparable = name.chars().count().abs_diff(length) <= bound;
        is_comparable.then(|| strsim::osa_distance(&wanted, &name)).filter(|edits| *edits <= bound)
    };
    let short = known.into_iter().filter(|name| name.len() <= 4 * MAX_LENGTH);
    let near = short.filter_map(|name| Some((edits(name)?, name)));
    near.min_by_key(|(edits, _)| *edits).map(|(_, name)| name)
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
        for (a, b, edits) in [
            ("", "", 0),
            ("", "ab", 2),
            ("ab", "ba", 1),
            ("kitten", "sitting", 3),
            ("ca", "abc", 3),
            ("aab", "aba", 1),
        ] {
            let both = (strsim::osa_distance(a, b), strsim::osa_distance(b, a));
            assert_eq!(both, (edits, edits), "{a} {b}");
        }
    }
}
