//! Waits until the whole path answers, then announces it: the file `env`, and a line starting with `ready`.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use asp_command::state_dir;
use asp_issuers::trusted_issuer::MAX_TTL;
use asp_platform::secret::Secret;
use asp_proto::mcp_revision::Revision;
use serde_json::json;

use crate::dev_issuer::{ClientToken, DevIssuer};

/// Timeout for the path: Envoy compiles the filter at start, which takes seconds on a loaded machine.
const READY_WITHIN: Duration = Duration::from_secs(120);
const ASK_EVERY: Duration = Duration::from_millis(100);
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// Statistics of Envoy that must not be zero, by their names in `envoy/bootstrap.yaml`: the snapshot and the list of revoked
/// tokens have configured their filters, and a gateway is healthy.
const NEEDED: &str = "^(extension_config_discovery.http_filter.(asp-edge|asp-revoked).config_reload\
    |cluster.gateway.membership_healthy)$";
const NEEDED_COUNT: usize = 3;

/// Org of the client token in `env`.
pub const ORG: &str = "acme";

/// URLs of the stack.
#[derive(Clone, Debug)]
pub struct Urls {
    pub edge: String,
    pub admin: String,
    /// URL that answers 200 when the edge works.
    pub probe: String,
    /// URL of Envoy's statistics on its admin port; `None` if no Envoy is started.
    pub statistics: Option<String>,
}

/// Waits until the edge works: listener, filter and gateway answer `probe` through Envoy, and Envoy has a snapshot, a
/// gateway, and the list of revoked tokens, without which it accepts no token. Without an Envoy, `probe` is the gateway's.
pub async fn wait(urls: &Urls) -> anyhow::Result<()> {
    let client = reqwest::Client::builder()
        .timeout(ASK_TIMEOUT)
        .no_proxy()
        .build()
        .context("create the readiness client")?;
    let statistics = urls.statistics.as_ref().map(|statistics| format!("{statistics}?filter={NEEDED}"));
    let mut lacks = format!("{} does not answer 200", urls.probe);
    let asked = async {
        while ask(&client, &urls.probe).await.is_none() {
            tokio::time::sleep(ASK_EVERY).await;
        }
        let Some(statistics) = statistics else { return };
        lacks = format!(
            "Envoy has not received the snapshot, the list of revoked tokens and a gateway; see {statistics}"
        );
        while ask(&client, &statistics).await.is_none_or(|text| nonzero(&text) < NEEDED_COUNT) {
            tokio::time::sleep(ASK_EVERY).await;
        }
    };
    if tokio::time::timeout(READY_WITHIN, asked).await.is_err() {
        bail!("after {} s {lacks}", READY_WITHIN.as_secs());
    }
    Ok(())
}

/// Returns the body of a 200 response.
async fn ask(client: &reqwest::Client, url: &str) -> Option<String> {
    let response = client.get(url).send().await.ok()?;
    if response.status() != reqwest::StatusCode::OK {
        return None;
    }
    response.text().await.ok()
}

/// Counts the statistics that are not zero.
fn nonzero(statistics: &str) -> usize {
    let counts = statistics.lines().filter_map(|line| line.rsplit_once(": "));
    counts.filter(|(_, count)| *count != "0").count()
}

/// Writes `env` (0600) into the state directory: a shell file that exports the addresses and two tokens.
pub fn write_env(state_dir: &Path, urls: &Urls, issuer: &DevIssuer) -> anyhow::Result<()> {
    let token = client_token(issuer)?;
    let admin_token = issuer.mint_admin("admin", "platform", &[], MAX_TTL).context("mint the admin token")?;
    let text = format!(
        "export ASP_EDGE_URL={}\nexport ASP_ADMIN_URL={}\nexport ASP_TOKEN={}\nexport ASP_ADMIN_TOKEN={}\n",
        urls.edge,
        urls.admin,
        token.expose(),
        admin_token.expose()
    );
    let path = state_dir.join("env");
    state_dir::replace(&path, text.as_bytes()).with_context(|| format!("write {}", path.display()))
}

/// Returns a token for alice of acme that is valid for a day.
pub fn client_token(issuer: &DevIssuer) -> anyhow::Result<Secret> {
    let client = ClientToken {
        org: ORG.into(),
        user: "alice".into(),
        scopes: Vec::new(),
        groups: Vec::new(),
        audience: issuer.audience().to_owned(),
        ttl: MAX_TTL,
    };
    issuer.mint_client(&client).context("mint the client token")
}

/// Prints the next steps for a person.
pub fn announce(state_dir: &Path, urls: &Urls) {
    let env = state_dir.join("env");
    let revision = Revision::LATEST.as_str();
    let meta = json!({"io.modelcontextprotocol/protocolVersion": revision,
                      "io.modelcontextprotocol/clientCapabilities": {}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}});
    let text = format!(
        "\nTry next, in another terminal:\n\
         \n  source {env}\
         \n  curl -s $ASP_EDGE_URL/demo/mcp -H \"Authorization: Bearer $ASP_TOKEN\" \\\
         \n    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\\
         \n    -H 'MCP-Protocol-Version: {revision}' -H 'Mcp-Method: tools/list' \\\
         \n    -d '{body}'\
         \n  curl -s $ASP_ADMIN_URL/api/snapshot -H \"Authorization: Bearer $ASP_ADMIN_TOKEN\"\n\
         \nready: {edge} (clients), {admin} (admin)",
        env = env.display(),
        edge = urls.edge,
        admin = urls.admin,
    );
    // Err: nothing reads standard output.
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers each request with the next of these answers, then repeats the last; returns the requests too.
    async fn says(answers: &'static [&'static str]) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        tokio::spawn(async move {
            for number in 0.. {
                let (mut client, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                let count = client.read(&mut request).await.unwrap();
                heard
                    .lock()
                    .push(String::from_utf8_lossy(&request[..count]).lines().next().unwrap().to_owned());
                let body = answers[answers.len().min(number + 1) - 1];
                let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n";
                let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
                client.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (address, asked)
    }

    #[tokio::test]
    async fn it_is_ready_when_envoy_has_the_list_of_revoked_tokens_too() {
        let (address, asked) = says(&[
            "ok",
            "",
            "x.asp-edge.config_reload: 1\nx.asp-revoked.config_reload: 0\ncluster.gateway.membership_healthy: 1\n",
            "x.asp-edge.config_reload: 1\nx.asp-revoked.config_reload: 12\ncluster.gateway.membership_healthy: 1\n",
        ])
        .await;
        let urls = Urls {
            edge: String::new(),
            admin: String::new(),
            probe: format!("http://{address}/healthz"),
            statistics: Some(format!("http://{address}/stats")),
        };
        wait(&urls).await.unwrap();
        let asked = asked.lock();
        assert_eq!((asked.len(), asked[0].as_str()), (4, "GET /healthz HTTP/1.1"));
        assert!(asked[3].starts_with("GET /stats?filter=^(extension_config_discovery."), "{}", asked[3]);
    }

    #[test]
    fn the_env_file_is_private_and_exports_what_others_source() {
        use std::os::unix::fs::PermissionsExt;
        crate::dev_issuer::install_crypto();
        let dir = tempfile::tempdir().unwrap();
        let mut issuer = DevIssuer::load_or_create(dir.path()).unwrap();
        issuer.set_audience("http://127.0.0.1:1").unwrap();
        let urls = Urls {
            edge: "http://127.0.0.1:1".into(),
            admin: "http://127.0.0.1:2".into(),
            probe: String::new(),
            statistics: None,
        };
        write_env(dir.path(), &urls, &issuer).unwrap();
        let path = dir.path().join("env");
        let text = std::fs::read_to_string(&path).unwrap();
        let names: Vec<&str> = text.lines().map(|line| line.split('=').next().unwrap()).collect();
        assert_eq!(
            names,
            ["export ASP_EDGE_URL", "export ASP_ADMIN_URL", "export ASP_TOKEN", "export ASP_ADMIN_TOKEN"]
        );
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
