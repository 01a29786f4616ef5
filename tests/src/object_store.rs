//! A real object store, which speaks S3 and refuses every bad signature, over a directory.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Result;
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::Process;
use crate::wait::ErrorDetails;
use crate::{http1, tool, wait};

pub const BUCKET: &str = "asp-files";
pub const ACCESS_KEY: &str = "an-access-key-of-tests";
pub const SECRET_KEY: &str = "a-secret-key-of-tests";
pub const REGION: &str = "us-east-1";
/// Each store has a loopback address of its own, so none is in another's way.
const PORT: u16 = 9000;
const HEALTH: &str = "/healthz";

/// A store with one empty bucket.
pub struct ObjectStore {
    pub process: Process,
    pub address: SocketAddr,
    directory: TempDir,
}

impl ObjectStore {
    /// Starts a server and waits until it answers.
    pub async fn start() -> Result<ObjectStore> {
        let directory = tempfile::tempdir()?;
        fs::create_dir(directory.path().join(BUCKET))?;
        let [a, b, c] = rand::random();
        let address = SocketAddr::from((Ipv4Addr::new(127, a, b, c.clamp(1, 254)), PORT));
        let process = serve(&directory, address)?;
        let store = ObjectStore { process, address, directory };
        store.answers().await?;
        Ok(store)
    }

    /// Starts it once more, with what was in it, after its process has ended.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process = serve(&self.directory, self.address)?;
        self.answers().await
    }

    async fn answers(&self) -> Result<()> {
        let answers = wait::until("the object store answers", wait::START, || async {
            http1::get(self.address, HEALTH, &[]).await.ok().filter(|answer| answer.status == 200)
        });
        answers.await.map(drop).with_details(|| self.process.tail())
    }

    /// What a client gives as `ASP_S3_URL`.
    pub fn url(&self) -> String {
        format!("http://{}/{BUCKET}", self.address)
    }

    /// What a process of the platform has in its environment to use it.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("ASP_S3_URL", self.url()),
            ("ASP_S3_ACCESS_KEY_ID", ACCESS_KEY.into()),
            ("ASP_S3_SECRET_ACCESS_KEY", SECRET_KEY.into()),
        ]
    }

    /// The files of the objects below a folder of the bucket.
    pub fn objects(&self, folder: &str) -> Result<Vec<PathBuf>> {
        let folder = self.directory.path().join(BUCKET).join(folder);
        if !folder.is_dir() {
            return Ok(Vec::new());
        }
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
    }
}

fn serve(directory: &TempDir, address: SocketAddr) -> Result<Process> {
    let mut command = Command::new(tool::versitygw()?);
    command
        .args([
            "--port",
            &address.to_string(),
            "--region",
            REGION,
            "--health",
            HEALTH,
            "--keep-alive",
            "posix",
        ])
        .arg(directory.path())
        .env("ROOT_ACCESS_KEY", ACCESS_KEY)
        .env("ROOT_SECRET_KEY", SECRET_KEY)
        // It looks for what else it may serve there.
        .current_dir("/");
    Process::start("versitygw", command)
}
