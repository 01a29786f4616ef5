//! Throw-away certificates.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// Where a test authority, a certificate of it and its key lie.
pub(crate) struct Files {
    pub(crate) authority: PathBuf,
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

/// Makes a test authority and a certificate of it for `name`, good for either side of a connection.
pub(crate) fn certificates(directory: &Path, name: &str) -> Result<Files> {
    let authority_key = KeyPair::generate()?;
    let mut authority = CertificateParams::new(Vec::new())?;
    // Distinct names: a certificate whose subject is its issuer's counts as self-signed.
    authority.distinguished_name.push(DnType::CommonName, "ASP test authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages =
        vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::DigitalSignature];
    let authority_certificate = authority.self_signed(&authority_key)?;
    let key = KeyPair::generate()?;
    let mut server = CertificateParams::new(vec![name.to_string()])?;
    server.distinguished_name.push(DnType::CommonName, name);
    server.use_authority_key_identifier_extension = true;
    let certificate = server.signed_by(&key, &Issuer::new(authority, &authority_key))?;
    let files = Files {
        authority: directory.join("authority.pem"),
        chain: directory.join("chain.pem"),
        key: directory.join("key.pem"),
    };
    fs::write(&files.authority, authority_certificate.pem())?;
    fs::write(&files.chain, certificate.pem())?;
    fs::write(&files.key, key.serialize_pem())?;
    Ok(files)
}
