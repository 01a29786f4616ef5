//! Digests of packages in the texts of specs (`runtime.artifactSha256`).
//!
//! Keeps true: nothing else of a spec changes, and comments stay; a text that cannot be edited so is left to its author.

use serde_json::Value;

/// Returns the spec with this digest as its pin; `None` if its text cannot be edited.
pub(super) fn pinned(text: &str, digest: &str) -> Option<String> {
    let spec: Value = serde_saphyr::from_str(text).ok()?;
    let mut wanted = spec.clone();
    let runtime = wanted.get_mut("runtime")?.as_object_mut()?;
    let former = runtime.insert("artifactSha256".to_owned(), digest.into());
    let former = former.as_ref().and_then(Value::as_str).unwrap_or_default();
    if former == digest {
        return Some(text.to_owned());
    }
    let edited = if !former.is_empty() {
        text.replace(former, digest)
    } else if text.trim_start().starts_with('{') {
        serde_json::to_string_pretty(&wanted).ok()? + "\n"
    } else {
        insert(text, digest)?
    };
    let read: Value = serde_saphyr::from_str(&edited).ok()?;
    (read == wanted).then_some(edited)
}

/// Adds the pin as the first member of the top-level `runtime`.
fn insert(text: &str, digest: &str) -> Option<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let at = lines.iter().position(|line| line.starts_with("runtime:"))?;
    let line = *lines.get(at)?;
    let value = line.strip_prefix("runtime:")?.trim();
    let head = lines.get(..at)?.concat();
    let tail = lines.get(at + 1..)?.concat();
    if let Some(flow) = value.strip_prefix('{') {
        return Some(format!("{head}runtime: {{artifactSha256: \"{digest}\", {}\n{tail}", flow.trim_start()));
    }
    if !value.is_empty() && !value.starts_with('#') {
        return None;
    }
    let is_member = |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let member = lines.iter().skip(at + 1).find(is_member)?;
    let indent = member.strip_suffix(member.trim_start_matches(' '))?;
    Some(format!("{head}{line}{indent}artifactSha256: \"{digest}\"\n{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_written_into_each_form_of_a_spec_and_nothing_else_changes() {
        let old = "ab".repeat(32);
        let new = "0".repeat(64);
        for (text, expected) in [
            (
                "id: a # mine\nruntime:\n  # why\n  mode: plugin\n  language: python\nx: 1\n",
                "id: a # mine\nruntime:\n  artifactSha256: \"NEW\"\n  # why\n  mode: plugin\n  language: python\nx: 1\n",
            ),
            (
                "runtime: # here\n    mode: plugin\n",
                "runtime: # here\n    artifactSha256: \"NEW\"\n    mode: plugin\n",
            ),
            ("runtime: {mode: plugin}\nx: 1\n", "runtime: {artifactSha256: \"NEW\", mode: plugin}\nx: 1\n"),
            ("runtime:\n  artifactSha256: OLD # of CI\n", "runtime:\n  artifactSha256: NEW # of CI\n"),
            (
                "{\"id\": \"a\", \"runtime\": {\"mode\": \"mcp-stdio\"}}\n",
                "{\n  \"id\": \"a\",\n  \"runtime\": {\n    \"mode\": \"mcp-stdio\",\n    \"artifactSha256\": \"NEW\"\n  }\n}\n",
            ),
        ] {
            let (text, digest) =
                (text.replace("OLD", &old), if text.contains("OLD") { "cd".repeat(32) } else { new.clone() });
            let edited = pinned(&text, &digest);
            assert_eq!(edited.as_deref(), Some(expected.replace("NEW", &digest).as_str()), "{text}");
            assert_eq!(pinned(&edited.unwrap(), &digest), Some(expected.replace("NEW", &digest)), "once");
        }
    }

    #[test]
    fn a_text_that_cannot_be_edited_is_left_alone() {
        for text in [
            "id: a\n",
            "\"runtime\":\n  mode: plugin\n",
            "runtime: &r\n  mode: plugin\n",
            "runtime: x\n",
            "- a\n",
        ] {
            assert_eq!(pinned(text, &"ab".repeat(32)), None, "{text}");
        }
    }
}
