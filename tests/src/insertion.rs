//! Puts the shipped snippet into somebody else's Envoy configuration, as its comments tell a person to.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

/// Replaces each `# insert: <name>` line of `foreign` with that section of `snippet`, at its indentation.
pub fn insert(foreign: &str, snippet: &str) -> Result<String> {
    let mut sections = sections(snippet)?;
    let mut text = String::new();
    for line in foreign.lines() {
        match line.trim_start().strip_prefix("# insert: ") {
            None => text.push_str(&format!("{line}\n")),
            Some(name) => {
                let section =
                    sections.remove(name).with_context(|| format!("the snippet has no section {name}"))?;
                let indent = " ".repeat(line.len() - line.trim_start().len());
                for inserted in section {
                    text.push_str(&format!("{indent}{inserted}\n"));
                }
            }
        }
    }
    if !sections.is_empty() {
        bail!("sections of the snippet that found no place: {:?}", sections.keys());
    }
    Ok(text)
}

/// The lines between `# --- section: <name> …` and `# --- end`.
fn sections(snippet: &str) -> Result<BTreeMap<String, Vec<&str>>> {
    let mut sections = BTreeMap::new();
    let mut open: Option<(String, Vec<&str>)> = None;
    for line in snippet.lines() {
        if let Some(rest) = line.strip_prefix("# --- section: ") {
            let name = rest.split_whitespace().next().context("a section has a name")?;
            open = Some((name.to_string(), Vec::new()));
        } else if line == "# --- end" {
            let (name, lines) = open.take().context("an end without a section")?;
            sections.insert(name, lines);
        } else if let Some((_, lines)) = &mut open {
            lines.push(line);
        }
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_go_where_the_foreign_configuration_wants_them() {
        let snippet = "# x\n# --- section: a (here)\n- one\n  two\n# --- end\n";
        assert_eq!(insert("k:\n  # insert: a\nz\n", snippet).unwrap(), "k:\n  - one\n    two\nz\n");
        assert!(insert("k:\n", snippet).is_err(), "a section without a place");
        assert!(insert("# insert: b\n", snippet).is_err(), "a place without a section");
    }
}
