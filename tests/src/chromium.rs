//! A real browser: Chromium without a screen, driven by WebDriver (W3C) over plain HTTP.
//!
//! Keeps true: it reaches loopback only, keeps nothing, and ends with its driver, whose pipe it reads.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::Process;
use crate::wait::ErrorDetails;
use crate::{http1, tool, wait};

/// What the driver says when it listens.
const LISTENS: &str = "started successfully on port ";
/// An element in WebDriver's answers (section 12.2).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Hang guard of one command of the browser, in milliseconds.
const COMMAND_MS: u64 = 60_000;

/// One browser with one window.
pub struct Chromium {
    driver: Process,
    address: SocketAddr,
    /// `/session/<id>`
    session: String,
    _home: TempDir,
}

impl Chromium {
    pub async fn start() -> Result<Chromium> {
        let home = tempfile::tempdir()?;
        let mut command = Command::new(tool::chromedriver()?);
        command.arg("--port=0").env("HOME", home.path()).env("TMPDIR", home.path());
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_CACHE_HOME");
        let driver = Process::start("chromedriver", command)?;
        let port = wait::until("chromedriver listens", wait::START, || async {
            let line = driver.log().lines().into_iter().find(|line| line.contains(LISTENS))?;
            line.split(LISTENS).nth(1)?.trim_end_matches('.').parse::<u16>().ok()
        });
        let port = port.await.with_details(|| driver.tail())?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut browser = Chromium { driver, address, session: String::new(), _home: home };
        let options = json!({
            "binary": tool::chromium()?,
            // Root, and users in most containers, can have no sandbox; the pages are the tests' own.
            "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                // When its driver is gone the pipe ends, and the browser with it.
                "--remote-debugging-pipe",
                "--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
            ],
        });
        let timeouts = json!({ "pageLoad": COMMAND_MS, "script": COMMAND_MS, "implicit": COMMAND_MS });
        let wanted = json!({ "browserName": "chrome", "goog:chromeOptions": options, "timeouts": timeouts });
        let made =
            browser.ask("POST", "/session", &json!({ "capabilities": { "alwaysMatch": wanted } })).await;
        let made = made.with_details(|| browser.driver.tail())?;
        browser.session = format!("/session/{}", text(&made, "sessionId")?);
        Ok(browser)
    }

    /// Ends the window, the browser and its driver.
    pub async fn stop(mut self) -> Result<()> {
        self.ask("DELETE", "", &Value::Null).await?;
        self.driver.stop().await.map(drop)
    }

    /// Opens a page, and waits until it is loaded.
    pub async fn open(&self, url: &str) -> Result<()> {
        self.ask("POST", "/url", &json!({ "url": url })).await.map(drop)
    }

    /// Removes all cookies of the page that the window shows.
    pub async fn clear_cookies(&self) -> Result<()> {
        self.ask("DELETE", "/cookie", &Value::Null).await.map(drop)
    }

    /// Where the window is.
    pub async fn url(&self) -> Result<String> {
        let url = self.ask("GET", "/url", &Value::Null).await?;
        Ok(url.as_str().context("a URL")?.to_owned())
    }

    /// Waits until the window is at an address that begins so; the address. A click may be done before what it leads to has
    /// begun.
    pub async fn arrives(&self, beginning: &str) -> Result<String> {
        let arrived = wait::until(beginning, wait::START, || async {
            self.url().await.ok().filter(|url| url.starts_with(beginning))
        });
        match arrived.await {
            Ok(url) => Ok(url),
            Err(late) => Err(late.context(format!("the browser is at {}", self.url().await?))),
        }
    }

    /// Clicks on an element (CSS), once it is there.
    pub async fn click(&self, css: &str) -> Result<()> {
        let element = self.element(css).await?;
        self.ask("POST", &format!("/element/{element}/click"), &json!({})).await.map(drop)
    }

    /// Types into an element (CSS).
    pub async fn fill(&self, css: &str, text: &str) -> Result<()> {
        let element = self.element(css).await?;
        self.ask("POST", &format!("/element/{element}/value"), &json!({ "text": text })).await.map(drop)
    }

    /// Runs a script's body in the page; what it returns.
    pub async fn run(&self, script: &str) -> Result<Value> {
        self.ask("POST", "/execute/sync", &json!({ "script": script, "args": [] })).await
    }

    /// The same for a script that ends by calling `done`.
    pub async fn run_until_done(&self, script: &str) -> Result<Value> {
        let script = format!("const done = arguments[0]; {script}");
        self.ask("POST", "/execute/async", &json!({ "script": script, "args": [] })).await
    }

    /// Looks into a frame (CSS) from now on; `None`: out of every frame.
    pub async fn look_into(&self, css: Option<&str>) -> Result<()> {
        let id = match css {
            Some(css) => json!({ ELEMENT: self.element(css).await? }),
            None => Value::Null,
        };
        self.ask("POST", "/frame", &json!({ "id": id })).await.map(drop)
    }

    async fn element(&self, css: &str) -> Result<String> {
        let found = self.ask("POST", "/element", &json!({ "using": "css selector", "value": css })).await?;
        Ok(text(&found, ELEMENT)?.to_owned())
    }

    /// One command; its answer's `value`.
    async fn ask(&self, method: &str, command: &str, body: &Value) -> Result<Value> {
        let request = http1::Request {
            method: method.into(),
            target: format!("{}{command}", self.session),
            headers: vec![("content-type".into(), b"application/json".to_vec())],
            body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
        };
        let answer = http1::send(self.address, &request).await?;
        let said = answer.json()?;
        let value = said.get("value").cloned().unwrap_or_default();
        if answer.status != 200 {
            bail!("{command} {body}: {}", text(&value, "message")?);
        }
        Ok(value)
    }
}

fn text<'a>(value: &'a Value, member: &str) -> Result<&'a str> {
    value.get(member).and_then(Value::as_str).with_context(|| format!("no {member}: {value}"))
}
