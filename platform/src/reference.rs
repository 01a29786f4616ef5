//! Reference of a program's settings, made from the clap command that declares them.
//!
//! Keeps true: a page lists exactly the settings that the program parses, with their defaults and help.

use clap::{Arg, Command};

/// Mark in a help text before a default that is described rather than given as a value.
const DESCRIBED: &str = " [default: ";

/// A setting as its program declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredSetting {
    /// Name of the variable, or the flag if there is no variable.
    pub name: String,
    pub section: String,
    pub help: String,
    /// Default value, or a description of it; `None` if there is none.
    pub default: Option<String>,
    /// Whether the value must not be printed.
    pub is_secret: bool,
}

impl DeclaredSetting {
    fn of(argument: &Arg) -> DeclaredSetting {
        let name = argument.get_env().map(|name| name.to_string_lossy().into_owned());
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let (help, described) = match help.split_once(DESCRIBED) {
            Some((help, default)) => (help.to_owned(), Some(default.trim_end_matches(']').to_owned())),
            None => (help, None),
        };
        let value = argument.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
        DeclaredSetting {
            name: name.unwrap_or_else(|| format!("--{}", argument.get_long().unwrap_or_default())),
            section: argument.get_help_heading().unwrap_or("Settings").to_owned(),
            help,
            default: value.filter(|value| !value.is_empty()).or(described),
            is_secret: argument.is_hide_env_values_set(),
        }
    }
}

/// Returns the settings of a command in the order of their declaration.
pub fn declared(command: &Command) -> Vec<DeclaredSetting> {
    command.get_arguments().map(DeclaredSetting::of).collect()
}

/// Returns a table for each section, in Markdown.
pub fn markdown(settings: &[DeclaredSetting]) -> String {
    let mut text = String::new();
    let mut section = None;
    for setting in settings {
        if section != Some(&setting.section) {
            section = Some(&setting.section);
            text.push_str(&format!(
                "\n### {}\n\n| setting | default | meaning |\n|---|---|---|\n",
                setting.section
            ));
        }
        let default = setting.default.as_deref().unwrap_or_default();
        text.push_str(&format!("| `{}` | {default} | {} |\n", setting.name, setting.help));
    }
    text
}

/// Returns the page with new tables between the comments that mark those of this program; `None` if it has no such comments.
pub fn with_tables(page: &str, program: &str, settings: &[DeclaredSetting]) -> Option<String> {
    let begin = format!("<!-- {program}: generated -->\n");
    let end = format!("\n<!-- {program}: end -->");
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{}{end}{after}", markdown(settings)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let port = Arg::new("port")
            .long("port")
            .env("ASP_X_PORT")
            .default_value("8080")
            .help("Port")
            .help_heading("Ports");
        let key = Arg::new("key")
            .long("key")
            .env("ASP_X_KEY")
            .hide_env_values(true)
            .help("Key [default: a new one]");
        let flag = Arg::new("unsafe").long("unsafe").help("No checks");
        Command::new("x").args([port, key.help_heading("Keys"), flag.help_heading("Keys")])
    }

    #[test]
    fn a_setting_has_its_name_default_and_help_from_its_declaration() {
        let found = declared(&command());
        let rows: Vec<_> =
            found.iter().map(|one| (one.name.as_str(), one.default.as_deref(), one.help.as_str())).collect();
        let expected = [
            ("ASP_X_PORT", Some("8080"), "Port"),
            ("ASP_X_KEY", Some("a new one"), "Key"),
            ("--unsafe", None, "No checks"),
        ];
        assert_eq!(rows, expected);
        assert_eq!(found.iter().map(|one| one.is_secret).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn a_page_keeps_what_is_outside_of_its_marks() {
        let page = "# X\n<!-- x: generated -->\nold\n<!-- x: end -->\nrest\n";
        let table = "| setting | default | meaning |\n|---|---|---|\n";
        let expected = format!(
            "# X\n<!-- x: generated -->\n\n### Ports\n\n{table}| `ASP_X_PORT` | 8080 | Port |\n\n### Keys\n\n{table}\
             | `ASP_X_KEY` | a new one | Key |\n| `--unsafe` |  | No checks |\n\n<!-- x: end -->\nrest\n"
        );
        let settings = declared(&command());
        assert_eq!(with_tables(page, "x", &settings).as_deref(), Some(expected.as_str()));
        assert_eq!(with_tables(&expected, "x", &settings), Some(expected.clone()), "it is stable");
        assert_eq!(with_tables("# X\n", "x", &settings), None);
    }
}
