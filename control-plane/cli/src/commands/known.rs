//! The end of a text about a name that is unknown.

use asp_control::suggestion::nearest;

/// Maximum number of names that are listed.
const MAX_LISTED: usize = 10;

/// Returns a question with the known name that was meant or, if none is near, the known names; empty if there are none.
pub(super) fn suggest(wanted: &str, known: &[impl AsRef<str>]) -> String {
    if let Some(near) = nearest(wanted, known.iter().map(AsRef::as_ref)) {
        return format!(": did you mean {near}?");
    }
    let listed: Vec<&str> = known.iter().take(MAX_LISTED).map(AsRef::as_ref).collect();
    let more = if known.len() > MAX_LISTED { ", …" } else { "" };
    match listed.is_empty() {
        true => String::new(),
        false => format!("; there are: {}{more}", listed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_asked_for_and_a_few_are_listed_otherwise() {
        assert_eq!(suggest("gret", &["bye", "greet"]), ": did you mean greet?");
        assert_eq!(suggest("lookup", &["bye", "greet"]), "; there are: bye, greet");
        assert_eq!(suggest("lookup", &[] as &[&str]), "");
        let many: Vec<String> = (0..11).map(|number| format!("tool-{number}")).collect();
        assert!(suggest("lookup", &many).ends_with("tool-9, …"), "{}", suggest("lookup", &many));
    }
}
