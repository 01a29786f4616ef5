//! The admin API, with a token of the platform's admin.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::stack::Stack;
use serde_json::Value;

pub(crate) struct Admin {
    token: String,
    address: SocketAddr,
}

impl Admin {
    pub(crate) async fn of(stack: &Stack) -> Result<Admin> {
        let token = stack.token(&["--admin", "--user", "root"]).await?;
        Ok(Admin { token, address: stack.admin() })
    }

    pub(crate) fn at(token: String, port: u16) -> Admin {
        Admin { token, address: SocketAddr::from(([127, 0, 0, 1], port)) }
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Response> {
        self.send("PUT", path, body).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Response> {
        self.send("POST", path, body).await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Response> {
        let request = Request {
            method: method.into(),
            target: path.into(),
            headers: vec![
                ("authorization".into(), format!("Bearer {}", self.token).into_bytes()),
                ("content-type".into(), b"application/json".to_vec()),
            ],
            body: body.to_string().into_bytes(),
        };
        let answer = http1::send(self.address, &request).await?;
        ensure!((200..300).contains(&answer.status), "{method} {path}: {} {}", answer.status, answer.text());
        Ok(answer)
    }
}
