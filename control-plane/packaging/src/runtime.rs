//! `asp-runtime` on one developer's machine: its command line and its start.

use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;

const CONNECT_EVERY: Duration = Duration::from_millis(20);

/// `true` has the effect of `--allow-private`.
pub const ENV_ALLOW_PRIVATE: &str = "ASP_ALLOW_PRIVATE";

/// Reads the value of `ASP_ALLOW_PRIVATE`.
pub fn allow_private(text: Option<&str>) -> Result<bool, String> {
    match text {
        Some("true") => Ok(true),
        None | Some("" | "false") => Ok(false),
        Some(other) => Err(format!("must be `true` or `false`, not `{other}`")),
    }
}

/// Returns the runtime's arguments. `plugins`: folder of the installed plugins; `state`: its state directory;
/// `allow_private`: whether plugins may reach the private services that their specs list; `development`: whether their author
/// is the only one who calls them.
pub fn arguments(
    plugins: &Path,
    state: &Path,
    socket: &Path,
    (allow_private, development): (bool, bool),
) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let places = [("--plugins", plugins), ("--state", state), ("--socket", socket)];
    let places = places.into_iter().flat_map(|(name, path)| [name.to_owned(), text(path)]);
    // The plugins are the author's own.
    let switches = [(allow_private, "--egress-development"), (development, "--development")];
    let switches = switches.into_iter().filter(|(is_on, _)| *is_on).map(|(_, name)| name.to_owned());
    places.chain(["--bounds".to_owned(), "sampled".to_owned()]).chain(switches).collect()
}

/// Completes once something listens on the socket.
pub async fn listens(socket: &Path) {
    while UnixStream::connect(socket).await.is_err() {
        tokio::time::sleep(CONNECT_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_switch_of_development_is_passed_alone() {
        let path = Path::new("/x");
        let has = |switches, name: &str| arguments(path, path, path, switches).iter().any(|one| one == name);
        assert!(has((true, false), "--egress-development") && !has((true, false), "--development"));
        assert!(has((false, true), "--development") && !has((false, true), "--egress-development"));
    }
}
