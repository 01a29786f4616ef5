//! Two instances of the platform and the agents of the SDKs. The near instance imports the agents and the far instance.
//!
//! | server | skill | goes to |
//! |---|---|---|
//! | one of each SDK, version and binding | `say`, `count`, `ask`, `wait` | that agent |
//! | [`REMOTE`] | `tck` | the far instance's `a2a-conformance` |
//! | [`RING`] | `pass` | the far instance's ring, which goes back to this one |
//! | links 1 to [`LINKS`] | `pass` | the far instance's link of the same number, which goes to the next one here; the last one goes to an agent |

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use asp_e2e::process::Process;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::tool;
use asp_e2e::wait::ErrorDetails;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::a2a_clients::{HTTP_BINDINGS, REST, SDKS, Sdk};
use crate::upstreams::port;

pub(super) const CONFORMANCE: &str = "a2a-conformance";
pub(super) const REMOTE: &str = "remote";
pub(super) const RING: &str = "ring";
/// Number of the links of either instance: from the first one on, a chain has two hops more than the eight that it may have.
const LINKS: usize = 5;
/// Host of the far instance for the near one, and the other way round.
const FAR: &str = "far.internal";
const NEAR: &str = "near.internal";

pub(crate) struct World {
    pub(super) near: Stack,
    pub(super) far: Stack,
    agents: Vec<(Sdk, Process)>,
    _detour: Detour,
    _folder: TempDir,
}

impl World {
    pub(crate) async fn start() -> Result<World> {
        let mut agents = Vec::new();
        for (sdk, client, _) in SDKS {
            agents.push((sdk, Process::start(client, sdk.agent()?)?));
        }
        let mut ports = Vec::new();
        for (_, agent) in &agents {
            ports.push(port(agent).await.with_details(|| agent.tail())?);
        }
        let folder = tempfile::tempdir()?;
        let detour = Detour::start().await?;
        let mut hosts: Vec<String> = SDKS
            .iter()
            .zip(&ports)
            .map(|((_, client, _), port)| format!("{}=http://127.0.0.1:{port}", host(client)))
            .collect();
        let far = far(&folder.path().join("far"), &detour, &hosts).await?;
        hosts.push(format!("{FAR}=http://{}", far.edge()));

        let token = folder.path().join("token");
        std::fs::write(&token, far.alice().await?)?;
        let origin = format!("http://{}", far.edge());
        let credential = json!({"origin": origin, "for": [format!("{REMOTE}/*")], "bearerFile": token});
        let imports = Imports {
            primitives: folder.path().join("near"),
            credentials: folder.path().join("credentials.json"),
        };
        std::fs::write(&imports.credentials, json!({ REMOTE: credential }).to_string())?;
        imports.agents(&ports).await?;
        imports.far(&origin).await?;
        let Imports { primitives, credentials } = imports;
        for number in 1..=LINKS {
            let link = link(number);
            pass_on(&primitives, &link, &format!("http://{FAR}/{link}/a2a"), "pass")?;
        }
        let environment =
            vec![("ASP_UPSTREAMS", hosts.join(",")), ("ASP_CREDENTIALS", credentials.display().to_string())];
        let near = Stack::start(Options { primitives, environment, ..Options::repository()? }).await?;
        detour.lead_to(near.edge());
        Ok(World { near, far, agents, _detour: detour, _folder: folder })
    }

    /// Returns the agent that is made with an SDK.
    pub(super) fn agent(&self, sdk: Sdk) -> Result<&Process> {
        let found = self.agents.iter().find(|(own, _)| *own == sdk);
        found.map(|(_, agent)| agent).context("every SDK has an agent")
    }

    /// Ends both instances, and judges their logs.
    pub(crate) async fn stop(self) -> Result<()> {
        self.near.stop(&[]).await.context("the near instance")?;
        self.far.stop(&[]).await.context("the far instance")
    }
}

/// Returns the name of the server for an agent.
pub(super) fn imported(client: &str, version: &str, over: &str) -> String {
    format!("{client}-{version}-{over}").replace(['_', '.'], "-")
}

/// Returns the name of a link.
pub(super) fn link(number: usize) -> String {
    format!("link-{number}")
}

fn host(client: &str) -> String {
    format!("{}.internal", client.replace('_', "-"))
}

/// Returns the path of an agent's interface, below which its card is too.
fn base(version: &str, binding: &str) -> String {
    format!("/{version}/{}", if binding == REST { "rest" } else { "jsonrpc" })
}

/// Returns the path of the requests to an interface.
fn interface(version: &str, binding: &str) -> String {
    let base = base(version, binding);
    if binding == REST { base } else { base + "/rpc" }
}

/// Starts the far instance: the conformance agent, and servers that pass messages on to the near instance.
async fn far(primitives: &Path, detour: &Detour, agents: &[String]) -> Result<Stack> {
    let conformance = primitives.join(CONFORMANCE);
    std::fs::create_dir_all(&conformance)?;
    for entry in std::fs::read_dir(tool::root()?.join("primitives").join(CONFORMANCE))? {
        let entry = entry?;
        std::fs::copy(entry.path(), conformance.join(entry.file_name()))?;
    }
    pass_on(primitives, RING, &format!("http://{NEAR}/{RING}/a2a"), "pass")?;
    for number in 1..LINKS {
        let next = link(number + 1);
        pass_on(primitives, &link(number), &format!("http://{NEAR}/{next}/a2a"), "pass")?;
    }
    let (_, client, [version, ..]) = SDKS[0] else { anyhow::bail!("an SDK speaks no version") };
    let agent = format!("http://{}{}", host(client), interface(version, HTTP_BINDINGS[0].0));
    pass_on(primitives, &link(LINKS), &agent, "say")?;
    let near = format!("{NEAR}=http://{}", detour.address);
    let environment = vec![("ASP_UPSTREAMS", [agents, &[near]].concat().join(","))];
    Stack::start(Options { primitives: primitives.to_owned(), environment, ..Options::repository()? }).await
}

/// Writes a server that anybody may use, whose skill `pass` passes a message on to a skill at a URL.
fn pass_on(primitives: &Path, server: &str, url: &str, skill: &str) -> Result<()> {
    let folder = primitives.join(server);
    std::fs::create_dir_all(&folder)?;
    let id = format!("{server}.pass");
    let file = json!({
        "apiVersion": "asp/v1", "name": server, "title": server, "description": "Passes messages on.",
        "version": "1.0.0", "protocols": ["mcp", "a2a"], "defaultExposure": "allow",
        "auth": {"schemes": ["none"]}, "primitives": [{"ref": format!("{server}/{id}")}],
    });
    // YAML includes JSON.
    std::fs::write(folder.join("server.yaml"), file.to_string())?;
    let schema =
        json!({"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]});
    let spec = json!({
        "id": id, "name": "Pass", "type": "task", "version": "1.0.0", "owner": "platform@example.com",
        "summary": "Passes a message on.", "mutation": "read_only",
        "capabilities": {"maxRuntimeSeconds": 60, "supportsProgress": true, "supportsCancellation": true},
        "security": {"riskClass": "low"}, "primitiveSchema": {"input_schema": schema},
        "exposure": {
            "mcp": {"tool": {"name": "pass"}}, "a2a": {"skill": {"id": "pass", "textArgument": "message"}},
        },
        "runtime": {"mode": "proxy", "a2a": {"url": url, "skill": skill, "textArgument": "message"}},
    });
    std::fs::write(folder.join("pass.json"), spec.to_string())?;
    Ok(())
}

/// Imports into the primitives of the near instance.
struct Imports {
    primitives: PathBuf,
    /// File with the operator's credentials.
    credentials: PathBuf,
}

impl Imports {
    /// Imports the agents of the SDKs in each version over each binding.
    async fn agents(&self, ports: &[u64]) -> Result<()> {
        for ((_, client, versions), port) in SDKS.iter().zip(ports) {
            for version in *versions {
                for (binding, over) in HTTP_BINDINGS {
                    let place = format!("http://127.0.0.1:{port}{}", base(version, binding));
                    let url = format!("http://{}{}", host(client), interface(version, binding));
                    let printed = self.import(&imported(client, version, over), &place, &url, &[]).await?;
                    let named = if binding == REST { "HTTP+JSON" } else { "JSON-RPC" };
                    let expected = format!("({named} of A2A {version}, without pinned keys)");
                    ensure!(printed.contains("4 skills") && printed.contains(&expected), "{printed}");
                }
            }
        }
        Ok(())
    }

    /// Imports the conformance agent of the far instance, with the operator's credential, and its ring, which needs none.
    async fn far(&self, origin: &str) -> Result<()> {
        for (server, agent, more) in [(REMOTE, CONFORMANCE, &["--credential", REMOTE][..]), (RING, RING, &[])]
        {
            let url = format!("http://{FAR}/{agent}/a2a");
            let printed = self.import(server, &format!("{origin}/{agent}"), &url, more).await?;
            ensure!(printed.contains("1 skills") && printed.contains("signed by pinned keys"), "{printed}");
        }
        let file = self.primitives.join(RING).join("server.yaml");
        let text = std::fs::read_to_string(&file)?;
        std::fs::write(&file, text.replace("{schemes: [jwt], issuers: [dev]}", "{schemes: [none]}"))?;
        Ok(())
    }

    /// Imports the agent at `place` as a server that is switched on, and whose calls go to `url` and need no approval.
    async fn import(&self, server: &str, place: &str, url: &str, more: &[&str]) -> Result<String> {
        let mut command = Command::new(tool::asp()?);
        command.args(["import", "--a2a", place, "--server", server, "--proxy-url", url]);
        command.args(["--protocols", "mcp,a2a", "--out"]).arg(&self.primitives).args(more);
        let output = command.env("ASP_CREDENTIALS", &self.credentials).kill_on_drop(true).output().await?;
        let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        ensure!(output.status.success(), "import of {place}: {printed}");
        for entry in std::fs::read_dir(self.primitives.join(server))? {
            let file = entry?.path();
            let text = std::fs::read_to_string(&file)?;
            let text = text.replace("\"mutation\": \"destructive\"", "\"mutation\": \"read_only\"");
            std::fs::write(&file, text.replace("defaultExposure: deny", "defaultExposure: allow"))?;
        }
        Ok(printed)
    }
}

/// An address from which connections are led to one that is known later.
struct Detour {
    address: SocketAddr,
    target: watch::Sender<Option<SocketAddr>>,
    task: JoinHandle<()>,
}

impl Detour {
    async fn start() -> Result<Detour> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (target, known) = watch::channel(None);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, known.clone()));
            }
        });
        Ok(Detour { address, target, task })
    }

    fn lead_to(&self, target: SocketAddr) {
        self.target.send_replace(Some(target));
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut client: TcpStream, mut known: watch::Receiver<Option<SocketAddr>>) -> Result<()> {
    let target = *known.wait_for(Option::is_some).await?;
    let mut server = TcpStream::connect(target.context("no target")?).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
