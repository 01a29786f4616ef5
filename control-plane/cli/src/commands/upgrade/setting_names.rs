//! Names of the settings that a check is given: those that no process reads, and whether any are a process's.

use asp_control::suggestion::nearest;
use asp_platform::reference;

use super::report::{ReportLine, comment};
use crate::settings::delegates::ENV_DELEGATE_KEYS;
use crate::settings::gateway::{ENV_PUSH_ORIGINS, ENV_TOKEN_AUDIENCES};
use crate::settings::given::GivenName;
use crate::settings::{self, ENV_AGENT_HOSTS, ENV_ISSUERS, ENV_STATE_DIR, ENV_UPSTREAMS};

const PREFIX: &str = "ASP_";
/// Section of the settings that commands read for themselves.
const OF_COMMANDS: &str = "Commands and plugins";
/// Page of all settings, generated from the programs. The settings of `asp-runtime`, which this program does not declare, follow
/// the mark.
const PAGE: &str = include_str!("../../../../../docs/settings.md");
const RUNTIME_MARK: &str = "<!-- asp-runtime: generated -->";

/// Returns the names of the settings of `asp-runtime`.
fn of_runtime() -> Vec<&'static str> {
    let (_, table) = PAGE.split_once(RUNTIME_MARK).unwrap_or_default();
    let names = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    names.filter(|name| name.starts_with(PREFIX)).collect()
}

/// Returns a line for each name that no process reads, and one if no name is of a setting of a process.
pub(super) fn lines(given: &[GivenName]) -> Vec<ReportLine> {
    let declared = reference::declared(&settings::command());
    let of_runtime = of_runtime();
    let of_asp = |name: &str| declared.iter().find(|setting| setting.name == name);
    let is_known = |name: &str| of_asp(name).is_some() || of_runtime.contains(&name);
    let is_of_process = |name: &str| {
        let of_service = |section: &str| section != OF_COMMANDS && name != ENV_STATE_DIR;
        of_runtime.contains(&name) || of_asp(name).is_some_and(|setting| of_service(&setting.section))
    };
    let known = || declared.iter().map(|setting| setting.name.as_str()).chain(of_runtime.iter().copied());
    let unknown = given.iter().filter(|one| one.name.starts_with(PREFIX) && !is_known(&one.name));
    let mut lines: Vec<ReportLine> =
        unknown.filter_map(|one| line(one, nearest(&one.name, known()))).collect();
    if !given.iter().any(|one| is_of_process(&one.name)) {
        let text = "no setting of a control plane, gateway or runtime was given, so the check knows neither their \
                    operator lists nor their issuers: give the settings of each process, by `--settings FILE` for each \
                    file of NAME=VALUE lines, or in the environment";
        lines.push(ReportLine::plain(comment("", text)));
    }
    lines
}

/// Returns the line for an unknown name. A variable of the environment that resembles no setting may be of another program.
fn line(given: &GivenName, near: Option<&str>) -> Option<ReportLine> {
    let place = match &given.file {
        Some(file) => file.display().to_string(),
        None if near.is_some() => "the environment".to_owned(),
        None => return None,
    };
    let remedy = match near {
        Some(near) => format!("the nearest one is {near}, a setting of {}", process_of(near)),
        None => "docs/settings.md lists all".to_owned(),
    };
    let text = format!("{} in {place}: no process reads a setting of this name; {remedy}", given.name);
    Some(ReportLine::plain(comment("", &text)))
}

fn process_of(setting: &str) -> &'static str {
    match setting {
        ENV_AGENT_HOSTS | ENV_UPSTREAMS | ENV_ISSUERS => "the control plane",
        ENV_DELEGATE_KEYS | ENV_PUSH_ORIGINS | ENV_TOKEN_AUDIENCES => "the gateway",
        _ if of_runtime().contains(&setting) => "the runtime",
        _ => "the control plane, the gateway or a command",
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn found(given: &[(&str, Option<&str>)]) -> Vec<String> {
        let name = |(name, file): &(&str, Option<&str>)| GivenName {
            name: (*name).to_owned(),
            file: file.map(PathBuf::from),
        };
        let given: Vec<GivenName> = given.iter().map(name).collect();
        lines(&given).into_iter().map(|line| line.line).collect()
    }

    #[test]
    fn an_unknown_name_is_reported_with_its_place_the_nearest_setting_and_its_process() {
        let control = Some("control.env");
        let runtime = Some("runtime.env");
        let found = found(&[
            ("ASP_PUBLIC_URL", control),
            ("ASP_UPSTREAM", control),
            ("ASP_RUNTIME_EGRESS_ALOW_PRIVATE", runtime),
            ("ASP_TOKEN_AUDIENCE", None),
            ("ASP_NONSENSE_OF_MINE", control),
            ("ASP_NONSENSE_OF_ANOTHER_PROGRAM", None),
            ("PATH", control),
        ]);
        assert_eq!(
            found,
            [
                "# ASP_UPSTREAM in control.env: no process reads a setting of this name; the nearest one is ASP_UPSTREAMS, \
                 a setting of the control plane",
                "# ASP_RUNTIME_EGRESS_ALOW_PRIVATE in runtime.env: no process reads a setting of this name; the nearest one \
                 is ASP_RUNTIME_EGRESS_ALLOW_PRIVATE, a setting of the runtime",
                "# ASP_TOKEN_AUDIENCE in the environment: no process reads a setting of this name; the nearest one is \
                 ASP_TOKEN_AUDIENCES, a setting of the gateway",
                "# ASP_NONSENSE_OF_MINE in control.env: no process reads a setting of this name; docs/settings.md lists all",
            ]
        );
    }

    #[test]
    fn without_a_setting_of_a_process_the_check_says_so() {
        let of_commands = [("ASP_ADMIN_URL", None), ("ASP_ADMIN_TOKEN", None), ("ASP_STATE_DIR", None)];
        for none in [&[][..], &of_commands[..]] {
            let found = found(none);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("# no setting of a control plane, gateway or runtime was given"));
            assert!(found[0].contains("--settings FILE"), "{found:?}");
        }
        for one in ["ASP_PUBLIC_URL", "ASP_UPSTREAMS", "ASP_RUNTIME_STATE"] {
            assert_eq!(found(&[(one, None)]), Vec::<String>::new(), "{one}");
        }
    }

    #[test]
    fn the_names_of_the_runtime_are_those_of_its_page() {
        let found = of_runtime();
        assert!(found.len() > 20 && found.iter().all(|name| name.starts_with("ASP_")), "{found:?}");
        for name in
            ["ASP_RUNTIME_PLUGINS", "ASP_RUNTIME_EGRESS_ALLOW_PRIVATE", "ASP_SECRETS", "ASP_PLUGIN_JAVA_SHIM"]
        {
            assert!(found.contains(&name), "{name}");
        }
        for name in ["ASP_UPSTREAMS", "--egress-development", "ASP_ISSUERS"] {
            assert!(!found.contains(&name), "{name}");
        }
    }
}
