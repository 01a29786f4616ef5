//! The command lines with which clients start packages: `npx`, `uvx`, and the bridge `mcp-remote`, which is a server over HTTP.
//!
//! Keeps true: a package is named by a registry's name and version; a command that means anything else, a key in an argument,
//! and a path of the client's machine are refused.

use asp_platform::secret::Secret;

/// A header or a variable.
pub(super) struct ClientKey {
    pub(super) name: String,
    /// The value; without one, the client's placeholder for it.
    pub(super) value: Result<Secret, String>,
}

/// Registry of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PackageRegistry {
    Npm,
    PyPi,
}

/// A package that a client fetches and runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackageCommand {
    pub(super) registry: PackageRegistry,
    /// Name, with the scope of npm.
    pub(super) name: String,
    /// Version, range or tag; the newest without one.
    pub(super) version: Option<String>,
    /// Extras of a Python package, in brackets; empty for none.
    pub(super) extras: String,
    /// Program of the package, if it is not the one of the package's name.
    pub(super) program: Option<String>,
    pub(super) arguments: Vec<String>,
}

/// Flags of npx that change nothing here.
const NPX_FLAGS: [&str; 5] = ["-y", "--yes", "-q", "--quiet", "--silent"];
/// Package that forwards standard input and output to a server over HTTP.
const BRIDGE: &str = "mcp-remote";
/// Parts of an option's name that make its value a key.
const KEYS: [&str; 7] = ["token", "secret", "password", "passwd", "apikey", "api-key", "credential"];

/// Returns program and arguments without the shell that clients on Windows need.
pub(super) fn unwrap_shell<'a>(command: &'a str, arguments: &'a [String]) -> (&'a str, &'a [String]) {
    match (program_name(command), arguments) {
        ("cmd", [flag, program, rest @ ..]) if flag.eq_ignore_ascii_case("/c") => (program.as_str(), rest),
        _ => (command, arguments),
    }
}

/// Returns the last part of a path, without the ending of Windows.
fn program_name(command: &str) -> &str {
    let name = command.rsplit(['/', '\\']).next().unwrap_or(command);
    name.strip_suffix(".exe").or_else(|| name.strip_suffix(".cmd")).unwrap_or(name)
}

/// Returns URL and headers of a server that is reached by `npx mcp-remote URL --header "Name: value"`; `None` for any other
/// command.
pub(super) fn bridge(
    command: &str,
    arguments: &[String],
    variables: &[ClientKey],
) -> Result<Option<(String, Vec<ClientKey>)>, String> {
    if program_name(command) != "npx" {
        return Ok(None);
    }
    let mut words = arguments.iter().map(String::as_str).skip_while(|word| NPX_FLAGS.contains(word));
    let is_bridge = words.next().is_some_and(|package| {
        package == BRIDGE || package.strip_prefix(BRIDGE).is_some_and(|rest| rest.starts_with('@'))
    });
    if !is_bridge {
        return Ok(None);
    }
    let url = words.next().ok_or("mcp-remote has no URL")?.to_owned();
    let mut headers = Vec::new();
    while let Some(word) = words.next() {
        if word == "--header" {
            let header = words.next().and_then(|header| header.split_once(':'));
            let (name, value) = header.ok_or("a header of mcp-remote has the form `Name: value`")?;
            headers.push(ClientKey {
                name: name.trim().to_owned(),
                value: of_variables(value.trim(), variables),
            });
        }
    }
    Ok(Some((url, headers)))
}

/// Replaces `${NAME}` by the variables of the same entry.
fn of_variables(text: &str, variables: &[ClientKey]) -> Result<Secret, String> {
    let mut value = text.to_owned();
    for variable in variables {
        let placeholder = format!("${{{}}}", variable.name);
        if value.contains(&placeholder) {
            value = value.replace(&placeholder, variable.value.as_ref().map_err(String::clone)?.expose());
        }
    }
    match value.split_once("${").and_then(|(_, rest)| rest.split_once('}')) {
        Some((name, _)) => Err(format!("${{{name}}}")),
        None => Ok(Secret::new(value)),
    }
}

/// Returns the package that a command starts.
pub(super) fn package(command: &str, arguments: &[String]) -> Result<PackageCommand, String> {
    let package = match (program_name(command), arguments) {
        ("npx", words) => npx(words)?,
        ("uvx", words) => uvx(words)?,
        ("uv", [tool, run, words @ ..]) if tool == "tool" && run == "run" => uvx(words)?,
        ("docker" | "podman", _) => {
            return Err(
                "a container is not imported: run it as a service over HTTP and import that with --mcp"
                    .to_owned(),
            );
        }
        (other, _) => {
            return Err(format!(
                "`{other}` is a program of the client's machine, and only packages of npx and uvx are fetched: put its code \
                 next to the specs and import it with --stdio"
            ));
        }
    };
    match package.arguments.iter().find_map(|argument| refused_argument(argument)) {
        Some(why) => Err(why),
        None => Ok(package),
    }
}

/// Reason why an argument cannot become part of a package's command line.
fn refused_argument(argument: &str) -> Option<String> {
    let option = argument.split('=').next().unwrap_or_default();
    let is_key = option.starts_with('-') && KEYS.iter().any(|key| option.to_ascii_lowercase().contains(key));
    // `scheme://user:password@host`
    let login = argument.split_once("://").and_then(|(_, rest)| rest.split('/').next()?.split_once('@'));
    let remedy = "carries a key, which a command line does not keep: give it as a variable in `env`, if the server reads one";
    if is_key {
        return Some(format!("its argument `{option}` {remedy}"));
    }
    if login.is_some_and(|(user, _)| user.contains(':')) {
        return Some(format!("an argument {remedy}"));
    }
    if argument.contains("${") {
        return Some("an argument has a placeholder that only the client can fill".to_owned());
    }
    let is_path = argument.starts_with(['/', '~']) || argument.get(1..3) == Some(":\\");
    is_path.then(|| {
        format!("its argument `{argument}` is a path of the client's machine, which a sandbox does not have")
    })
}

fn npx(words: &[String]) -> Result<PackageCommand, String> {
    let mut words = words.iter().map(String::as_str);
    let mut named = None;
    let first = loop {
        match words.next() {
            Some(flag) if NPX_FLAGS.contains(&flag) => {}
            Some("-p" | "--package") => named = words.next(),
            Some(word) if word.starts_with("--package=") => named = word.strip_prefix("--package="),
            Some(flag) if flag.starts_with('-') => {
                return Err(format!("the flag `{flag}` of npx has no meaning here"));
            }
            word => break word.ok_or("npx has no package")?,
        }
    };
    // With --package the first word is the program.
    let (package, program) = named.map_or((first, None), |package| (package, Some(first.to_owned())));
    let bare = package.strip_prefix('@').unwrap_or(package);
    let (name, version) = bare.split_once('@').map_or((bare, None), |(name, version)| (name, Some(version)));
    let name = package.get(..package.len() - bare.len() + name.len()).unwrap_or(package);
    let parts: Vec<&str> = name.trim_start_matches('@').split('/').collect();
    let wanted = if package.starts_with('@') { 2 } else { 1 };
    if parts.len() != wanted || !parts.iter().all(|part| is_name(part)) || !version.is_none_or(is_version) {
        return Err(format!("`{package}` is not a name and a version of npm's registry"));
    }
    Ok(PackageCommand {
        registry: PackageRegistry::Npm,
        name: name.to_owned(),
        version: version.map(str::to_owned),
        extras: String::new(),
        program,
        arguments: words.map(str::to_owned).collect(),
    })
}

fn uvx(words: &[String]) -> Result<PackageCommand, String> {
    let mut words = words.iter().map(String::as_str);
    let mut named = None;
    let first = loop {
        match words.next() {
            Some("--from") => named = words.next(),
            // The interpreter is that of the platform's plugins.
            Some("--python" | "-p") => {
                words.next();
            }
            Some(flag) if flag.starts_with('-') => {
                return Err(format!("the flag `{flag}` of uvx has no meaning here"));
            }
            word => break word.ok_or("uvx has no package")?,
        }
    };
    let (package, program) = named.map_or((first, None), |package| (package, Some(first.to_owned())));
    let (name, version) = match package.split_once("==").or_else(|| package.split_once('@')) {
        Some((name, version)) => (name, Some(version).filter(|version| *version != "latest")),
        None => (package, None),
    };
    let (name, extras) = match name.split_once('[') {
        Some((name, extras)) => (name, extras.strip_suffix(']').ok_or("an extra ends with `]`")?),
        None => (name, ""),
    };
    let is_extra = |extra: &str| is_name(extra.trim());
    if !is_name(name)
        || !version.is_none_or(is_version)
        || !(extras.is_empty() || extras.split(',').all(is_extra))
    {
        return Err(format!("`{package}` is not a name and a version of PyPI"));
    }
    Ok(PackageCommand {
        registry: PackageRegistry::PyPi,
        name: name.to_owned(),
        version: version.map(str::to_owned),
        extras: extras.to_owned(),
        program,
        arguments: words.map(str::to_owned).collect(),
    })
}

/// Whether a text is part of a name in a registry; a file, a URL and an option are none.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.bytes().all(plain)
}

fn is_version(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-^~*+".contains(&byte);
    !text.is_empty() && !text.starts_with('-') && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    /// Name, version, extras, program and arguments of the package that a line starts.
    fn read(line: &str) -> Result<(String, String, String, String, String), String> {
        let words = words(line);
        let (program, arguments) = unwrap_shell(&words[0], &words[1..]);
        let found = package(program, arguments)?;
        let text = |text: Option<String>| text.unwrap_or_default();
        Ok((found.name, text(found.version), found.extras, text(found.program), found.arguments.join(" ")))
    }

    #[test]
    fn a_package_is_read_from_each_spelling() {
        for (line, name, version, extras, program, arguments) in [
            (
                "npx -y @modelcontextprotocol/server-everything@2.0.0 stdio",
                "@modelcontextprotocol/server-everything",
                "2.0.0",
                "",
                "",
                "stdio",
            ),
            ("C:\\bin\\cmd.exe /c npx.cmd kit@latest", "kit", "latest", "", "", ""),
            (
                "/usr/bin/npx --package=@a/b@^1.2 serve --read-only",
                "@a/b",
                "^1.2",
                "",
                "serve",
                "--read-only",
            ),
            (
                "uvx mcp-server-time==2026.10.19 --local-timezone=Europe/Oslo",
                "mcp-server-time",
                "2026.10.19",
                "",
                "",
                "--local-timezone=Europe/Oslo",
            ),
            ("uvx --python 3.12 --from mcp_kit[cli,x]@latest kit run", "mcp_kit", "", "cli,x", "kit", "run"),
            ("uv tool run kit@1.0", "kit", "1.0", "", "", ""),
        ] {
            let found = read(line).unwrap();
            let found = (&*found.0, &*found.1, &*found.2, &*found.3, &*found.4);
            assert_eq!(found, (name, version, extras, program, arguments), "{line}");
        }
    }

    #[test]
    fn what_no_registry_has_and_what_a_command_line_must_not_keep_are_refused() {
        for (line, reason) in [
            ("docker run -i mcp/fetch", "container"),
            ("node /home/ada/server.js", "`node` is a program"),
            ("npx -c x", "flag `-c`"),
            ("npx -y github:ada/server", "npm's registry"),
            ("npx ../server", "npm's registry"),
            ("npx", "no package"),
            ("uvx --with x kit", "flag `--with`"),
            ("uvx --from git+https://x.example/y kit", "PyPI"),
            ("npx kit --access-token sbp_1", "`--access-token` carries a key"),
            ("npx kit --api-key=1", "`--api-key` carries a key"),
            ("npx kit postgresql://u:p@db.example/x", "carries a key"),
            ("npx kit /home/ada", "path of the client's machine"),
            ("npx kit C:\\Users", "path of the client's machine"),
            ("npx kit ${workspaceFolder}", "placeholder"),
        ] {
            let fault = read(line).unwrap_err();
            assert!(fault.contains(reason), "{line}: {fault}");
            assert!(!fault.contains("sbp_1") && !fault.contains("u:p"), "it repeats a key: {fault}");
        }
    }

    #[test]
    fn the_bridge_to_http_is_a_server_over_http() {
        let variables = [
            ClientKey { name: "AUTH".to_owned(), value: Ok("Bearer t".into()) },
            ClientKey { name: "B".to_owned(), value: Err("${input:b}".into()) },
        ];
        let mut line = words(
            "-y mcp-remote@0.1.2 https://a.example/mcp --transport http-only --header Authorization:${AUTH} --header",
        );
        line.push("X-B: ${B}".to_owned());
        let (url, headers) = bridge("npx", &line, &variables).unwrap().unwrap();
        assert_eq!(url, "https://a.example/mcp");
        let [first, second] = headers.as_slice() else { panic!() };
        assert_eq!(
            (first.name.as_str(), first.value.as_ref().unwrap().expose()),
            ("Authorization", "Bearer t")
        );
        assert_eq!(
            (second.name.as_str(), second.value.as_ref().err().unwrap().as_str()),
            ("X-B", "${input:b}")
        );
        assert!(bridge("npx", &words("mcp-remote-kit x"), &[]).unwrap().is_none());
        assert!(bridge("uvx", &words("mcp-remote x"), &[]).unwrap().is_none());
        assert!(bridge("npx", &words("mcp-remote"), &[]).is_err());
    }
}
