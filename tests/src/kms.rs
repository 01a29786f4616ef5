//! Real key services: a server of the API of AWS KMS, and a Kubernetes KMS plugin behind Kubernetes' own server.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::process::Process;
use crate::wait::ErrorDetails;
use crate::{http1, tool, wait};

pub const ACCESS_KEY: &str = "AKIDOFTESTS";
pub const SECRET_KEY: &str = "a-secret-key-of-tests";
const REGION: &str = "eu-west-1";
/// Each server has a loopback address of its own, so none is in another's way.
const PORT: u16 = 9001;
/// Hang guard: each test of a program starts a server, which imports for seconds.
const START: Duration = Duration::from_secs(180);

/// A server of the API of AWS KMS. Its keys end with it; it accepts every signature.
pub struct Kms {
    pub process: Process,
    pub address: SocketAddr,
}

impl Kms {
    /// Starts a server and waits until it answers.
    pub async fn start() -> Result<Kms> {
        let [a, b, c]: [u8; 3] = rand::random();
        let address = SocketAddr::from((Ipv4Addr::new(127, a.max(1), b, c.clamp(1, 254)), PORT));
        let mut command = Command::new(tool::moto_server()?);
        command.args(["-H", &address.ip().to_string(), "-p", &PORT.to_string()]);
        let process = Process::start("moto_server", command)?;
        let answers = wait::until("the key service answers", START, || async {
            http1::get(address, "/moto-api/data.json", &[]).await.ok().filter(|answer| answer.status == 200)
        });
        answers.await.map(drop).with_details(|| process.tail())?;
        Ok(Kms { process, address })
    }

    /// Origin of its API.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Creates a key and returns its ARN.
    pub async fn create_key(&self) -> Result<String> {
        let created = self.request("CreateKey", &json!({})).await?;
        let arn = created.pointer("/KeyMetadata/Arn").and_then(Value::as_str);
        Ok(arn.context("a key has an ARN")?.to_owned())
    }

    /// Makes a request as an administrator of keys.
    pub async fn request(&self, action: &str, body: &Value) -> Result<Value> {
        let credential = format!("{ACCESS_KEY}/20260101/{REGION}/kms/aws4_request");
        let authorization =
            format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=none");
        let target = format!("TrentService.{action}");
        let headers = [
            ("content-type", "application/x-amz-json-1.1"),
            ("authorization", authorization.as_str()),
            ("x-amz-target", target.as_str()),
        ];
        let answer = http1::post(self.address, "/", &headers, &body.to_string()).await?;
        ensure!(answer.status == 200, "{action}: {} {}", answer.status, answer.text());
        answer.json()
    }

    /// Environment of a process of the platform that uses a key.
    pub fn environment(&self, arn: &str) -> Vec<(&'static str, String)> {
        vec![
            ("ASP_VAULT_KMS", format!("aws:{arn}")),
            ("ASP_VAULT_AWS_ENDPOINT", self.endpoint()),
            ("ASP_VAULT_AWS_ACCESS_KEY_ID", ACCESS_KEY.into()),
            ("ASP_VAULT_AWS_SECRET_ACCESS_KEY", SECRET_KEY.into()),
        ]
    }
}

/// A KMS plugin, with the API's server of Kubernetes.
pub struct KmsPlugin {
    pub process: Process,
    pub socket: PathBuf,
    directory: TempDir,
}

impl KmsPlugin {
    /// Starts a plugin with this key and waits until it listens.
    pub async fn start(key: &str) -> Result<KmsPlugin> {
        let directory = tempfile::tempdir()?;
        let socket = directory.path().join("kms.sock");
        let state = directory.path().join("state");
        fs::write(&state, key)?;
        let mut command = Command::new(tool::kms_plugin()?);
        command.arg(&socket).arg(&state);
        let process = Process::start("kms-plugin", command)?;
        let listens = wait::until("the plugin listens", wait::START, || async {
            UnixStream::connect(&socket).await.ok()
        });
        listens.await.map(drop).with_details(|| process.tail())?;
        Ok(KmsPlugin { process, socket, directory })
    }

    /// Makes another key the current one; a reason after it makes the plugin unhealthy.
    pub fn set(&self, state: &str) -> Result<()> {
        // Renamed, so that no request reads half of it.
        let file = self.directory.path().join("state");
        let next = self.directory.path().join("next");
        fs::write(&next, state)?;
        Ok(fs::rename(next, file)?)
    }

    /// Environment of a process of the platform that uses the plugin.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![("ASP_VAULT_KMS", format!("plugin:{}", self.socket.display()))]
    }
}
