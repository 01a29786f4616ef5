//! The help of `asp`: its commands by role, one line each.

use clap::{Command, CommandFactory};

use super::Cli;

/// Roles with their commands, in the order of the help. Commands that are not named follow as others.
const ROLES: [(&str, &[&str]); 5] = [
    ("Authors of servers", &["plugin", "dev", "lint", "compile", "import", "call", "tools", "mcp"]),
    (
        "Teams of servers (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)",
        &["deploy", "apply", "diff", "servers", "artifacts"],
    ),
    (
        "Admins of orgs (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)",
        &[
            "policy",
            "limits",
            "explain",
            "revoke",
            "block",
            "unblock",
            "approvals",
            "links",
            "history",
            "undo",
            "audit",
            "usage",
            "calls",
            "sessions",
            "machines",
            "push",
        ],
    ),
    (
        "Operators of the platform",
        &[
            "serve",
            "config",
            "status",
            "issuer",
            "orgs",
            "runtimes",
            "routes",
            "regions",
            "link-provider",
            "vault",
            "kafka",
            "db",
            "upgrade",
        ],
    ),
    ("Everybody", &["login", "token", "connect", "completions"]),
];
const OTHERS: &str = "Others";

/// Returns the command line with its help by role.
pub fn command() -> Command {
    let command = Cli::command();
    let commands = by_role(&command);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}Options:\n{{options}}{{after-help}}\n"
    ))
}

fn by_role(command: &Command) -> String {
    let named = |name: &str| ROLES.iter().any(|(_, names)| names.contains(&name));
    let others: Vec<&str> =
        command.get_subcommands().map(Command::get_name).filter(|name| !named(name)).collect();
    let mut roles: Vec<(&str, &[&str])> = ROLES.to_vec();
    roles.push((OTHERS, &others));
    let mut text = String::new();
    for (role, names) in roles.into_iter().filter(|(_, names)| !names.is_empty()) {
        text.push_str(&format!("{role}:\n"));
        for below in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = below.get_about().map(ToString::to_string).unwrap_or_default();
            // The role's heading names the variables.
            let about = about.split_once(" (ASP_").map_or(about.as_str(), |(about, _)| about);
            text.push_str(&format!("  {:<13} {about}\n", below.get_name()));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of a large terminal window.
    const SCREEN: usize = 72;

    #[test]
    fn every_command_is_listed_once_and_all_of_them_fit_on_a_screen() {
        let command = command();
        let help = command.clone().render_help().to_string();
        for below in command.get_subcommands() {
            let line = format!("\n  {:<13} ", below.get_name());
            assert_eq!(help.matches(&line).count(), 1, "{}: {help}", below.get_name());
        }
        for name in ROLES.iter().flat_map(|(_, names)| *names) {
            assert!(command.find_subcommand(name).is_some(), "{name} is no command");
        }
        assert!(help.lines().count() <= SCREEN, "{help}");
        assert!(help.contains("Examples:") && help.contains("Usage: asp <COMMAND>"), "{help}");
    }
}
