//! TLS and a public name: official clients work at the URL the company publishes.

use anyhow::Result;
use asp_e2e::connect_proxy::ConnectProxy;
use asp_e2e::stack::{Options, Stack};

use crate::certificate::certificates;
use crate::clients::{self, LEGACY, MODERN, Place};
use crate::trial::{Shared, trials};

const HOST: &str = "mcp.webexapis.com";

trials! { public_name:
    official_clients_work_over_tls_at_the_published_url,
}

async fn official_clients_work_over_tls_at_the_published_url(_: &Shared) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let files = certificates(directory.path(), HOST)?;
    let mut options = Options::repository()?;
    options.public_url = Some(format!("https://{HOST}"));
    options.tls = Some((files.chain, files.key));
    let stack = Stack::start(options).await?;
    let proxy = ConnectProxy::start(&format!("{HOST}:443"), stack.edge()).await?;
    let through = format!("http://{}", proxy.address);
    let url = format!("https://{HOST}/demo/mcp");
    let token = stack.alice().await?;
    let authority = files.authority.to_string_lossy().into_owned();
    let environment = [
        ("HTTPS_PROXY", through.as_str()),
        ("SSL_CERT_FILE", &authority),
        ("NODE_EXTRA_CA_CERTS", &authority),
        ("NODE_USE_ENV_PROXY", "1"),
    ];
    let place = Place { environment: &environment, ..Place::demo(&url, &token) };
    clients::python_at(&place, "legacy", LEGACY).await?;
    clients::python_at(&place, "auto", MODERN).await?;
    clients::node_v2_at(&place, MODERN, MODERN).await?;
    stack.stop(&[]).await
}
