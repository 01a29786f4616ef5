//! `asp config`: every setting with its value, its source, its default and its meaning.
//!
//! Keeps true: the list shows neither a secret nor a refused value, which may be a misplaced secret. The errors after it are
//! those of `asp serve`, which repeat no secret and no URL with credentials.

use asp_command::environment::Environment;
use asp_command::failure::{Failure, SettingFault};
use asp_command::print;
use asp_platform::reference::{self, DeclaredSetting};
use serde_json::{Value, json};

use crate::args::ServeArgs;
use crate::args::config::ConfigArgs;
use crate::settings::given::GivenSettings;
use crate::settings::source::{HIDDEN, has_credentials};
use crate::settings::{self, Settings};

/// Prints the settings, and then the faults that `asp serve` would report.
pub fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let declared = reference::declared(&settings::command());
    if args.format == "markdown" {
        print::line(reference::markdown(&declared).trim());
        return Ok(());
    }
    let given = GivenSettings::read(&args.settings).map_err(Failure::Configuration)?;
    let faults = Settings::read(&args.serve, &given).err().unwrap_or_default();
    let values = declared.iter().map(|setting| value(setting, &args.serve, &given, &faults));
    let rows = declared.iter().zip(values);
    match args.json || args.format == "json" {
        true => print::json(&rows.map(|(setting, value)| row(setting, &value)).collect::<Vec<_>>()),
        false => rows.for_each(|(setting, value)| print::line(&text(setting, &value))),
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::Configuration(faults)) }
}

/// Returns the value that is in force, `None` if there is none, and its source.
fn value(
    setting: &DeclaredSetting,
    args: &ServeArgs,
    given: &GivenSettings,
    faults: &[SettingFault],
) -> (Option<String>, &'static str) {
    let name = setting.name.as_str();
    let (value, source) = match (flag(name, args), given.get(name)) {
        (Some(value), _) => (value, "flag"),
        (None, Some(value)) => (value, if given.is_of_file(name) { "file" } else { "environment" }),
        (None, None) => return (setting.default.clone(), "default"),
    };
    let is_refused = faults.iter().any(|fault| fault.name == name);
    let is_hidden = setting.is_secret || is_refused || has_credentials(&value);
    (Some(if is_hidden { HIDDEN.to_owned() } else { value }), source)
}

/// Returns the value of the flag that takes precedence over a setting.
fn flag(name: &str, args: &ServeArgs) -> Option<String> {
    match name {
        "ASP_BIND" => args.bind.clone(),
        "ASP_ALLOW_PRIVATE" => args.allow_private.then(|| true.to_string()),
        _ => None,
    }
}

fn row(setting: &DeclaredSetting, (value, source): &(Option<String>, &str)) -> Value {
    let DeclaredSetting { name, section, help, default, .. } = setting;
    json!({
        "name": name, "section": section, "value": value, "source": source, "default": default, "help": help,
    })
}

fn text(setting: &DeclaredSetting, (value, source): &(Option<String>, &str)) -> String {
    let value = value.as_deref().unwrap_or("(unset)");
    let default = setting.default.as_ref().filter(|_| *source != "default");
    let default = default.map(|default| format!("; default {default}")).unwrap_or_default();
    format!("{} = {value}  ({source}{default})\n    {}", setting.name, setting.help)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Writes settings to a file and returns the declared ones, those of the file, and the faults.
    fn read(lines: &str, serve: &ServeArgs) -> (Vec<DeclaredSetting>, GivenSettings, Vec<SettingFault>) {
        let dir = tempfile::tempdir().unwrap();
        let file: PathBuf = dir.path().join("asp.env");
        std::fs::write(&file, lines).unwrap();
        let given = GivenSettings::read(&[file]).unwrap();
        let faults = Settings::read(serve, &given).err().unwrap_or_default();
        (reference::declared(&settings::command()), given, faults)
    }

    #[test]
    fn each_setting_has_its_value_and_source_and_no_secret_shows() {
        let serve = ServeArgs { dev: true, bind: Some("::1".into()), ..ServeArgs::default() };
        let lines = "ASP_POOL=heavy\nASP_DATABASE_URL=postgres://asp:hunter2@db/asp\nASP_SEAL_KEY=hunter2\n\
                     ASP_PUBLIC_URL=hunter2\nASP_ADMIN_URL=https://asp:hunter2@control.example\n";
        let (declared, given, faults) = read(lines, &serve);
        let of = |setting: &DeclaredSetting| value(setting, &serve, &given, &faults);
        let shown = |name: &str| of(declared.iter().find(|one| one.name == name).unwrap());
        assert_eq!(shown("ASP_POOL"), (Some("heavy".into()), "file"));
        assert_eq!(shown("ASP_BIND"), (Some("::1".into()), "flag"));
        assert_eq!(shown("ASP_EDGE_WORKERS"), (Some("2".into()), "default"));
        for hidden in ["ASP_DATABASE_URL", "ASP_SEAL_KEY", "ASP_PUBLIC_URL", "ASP_ADMIN_URL"] {
            assert_eq!(shown(hidden), (Some("***".into()), "file"), "{hidden}");
        }
        let texts: String = declared.iter().map(|one| text(one, &of(one))).collect();
        let values: Vec<Value> = declared.iter().map(|one| row(one, &of(one))).collect();
        assert!(!texts.contains("hunter2") && !format!("{values:?}").contains("hunter2"), "{texts}");
        assert!(texts.contains("ASP_POOL = heavy  (file; default gateway)"), "{texts}");
    }

    #[test]
    fn no_fault_repeats_a_secret_or_a_url_with_credentials() {
        let serve = ServeArgs { dev: true, ..ServeArgs::default() };
        for line in [
            "ASP_PUBLIC_URL=https://asp:hunter2@mcp.example.com",
            "ASP_PUBLIC_URL=https://asp:hun/hunter2@mcp.example.com",
            "ASP_ISSUER_ORIGINS=https://login.example.com,https://asp:hunter2@login.example.com",
            "ASP_ISSUER_ORIGINS=https://asp:hun,hunter2@login.example.com",
            "ASP_UPSTREAMS=crm=http://asp:hunter2@crm:80;for=*",
            "ASP_TOKEN_AUDIENCES=https://asp:hunter2@crm.example.com;for=*",
            "ASP_SEAL_KEY=hunter2",
            "ASP_DATABASE_URL=mysql://asp:hunter2@db/asp",
        ] {
            let (_, _, faults) = read(line, &serve);
            assert!(!faults.is_empty(), "{line}");
            assert!(!format!("{faults:?}").contains("hunter2"), "{faults:?}");
        }
    }
}
