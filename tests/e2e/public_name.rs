//! TLS and a public name: official clients work at the URL the company publishes.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use asp_e2e::connect_proxy::ConnectProxy;
use asp_e2e::stack::{Options, Stack};
use libtest_mimic::Trial;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::clients::{self, LEGACY, MODERN, Place};
use crate::trial::Shared;

const HOST: &str = "mcp.webexapis.com";

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![shared.trial("public_name::official_clients_work_over_tls_at_the_published_url", |_| published())]
}

async fn published() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let files = certificates(&directory)?;
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

struct Files {
    authority: PathBuf,
    chain: PathBuf,
    key: PathBuf,
}

/// A test CA and a certificate of it for the public name.
fn certificates(directory: &TempDir) -> Result<Files> {
    let authority_key = KeyPair::generate()?;
    let mut authority = CertificateParams::new(Vec::new())?;
    // Distinct names: a certificate whose subject is its issuer's counts as self-signed.
    authority.distinguished_name.push(DnType::CommonName, "ASP test authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages =
        vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::DigitalSignature];
    let authority_certificate = authority.self_signed(&authority_key)?;
    let key = KeyPair::generate()?;
    let mut server = CertificateParams::new(vec![HOST.to_string()])?;
    server.distinguished_name.push(DnType::CommonName, HOST);
    server.use_authority_key_identifier_extension = true;
    let certificate = server.signed_by(&key, &Issuer::new(authority, &authority_key))?;
    let files = Files {
        authority: directory.path().join("authority.pem"),
        chain: directory.path().join("chain.pem"),
        key: directory.path().join("key.pem"),
    };
    fs::write(&files.authority, authority_certificate.pem())?;
    fs::write(&files.chain, certificate.pem())?;
    fs::write(&files.key, key.serialize_pem())?;
    Ok(files)
}
