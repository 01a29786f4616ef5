//! Throw-away certificates.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

/// Where a test authority, a certificate of it and its key lie.
pub(crate) struct Files {
    pub(crate) authority: PathBuf,
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

/// Makes a test authority and a certificate of it for `name`, good for either side of a connection.
pub(crate) fn certificates(directory: &Path, name: &str) -> Result<Files> {
    Authority::new(directory)?.sign("", vec![SanType::DnsName(name.try_into()?)])
}

/// A test authority.
pub(crate) struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(directory: &Path) -> Result<Authority> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::new(Vec::new())?;
        // Distinct names: a certificate whose subject is its issuer's counts as self-signed.
        parameters.distinguished_name.push(DnType::CommonName, "ASP test authority");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages =
            vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::DigitalSignature];
        fs::write(directory.join("authority.pem"), parameters.self_signed(&key)?.pem())?;
        Ok(Authority { directory: directory.to_owned(), issuer: Issuer::new(parameters, key) })
    }

    /// A certificate of a process of the platform on this machine, `<role>/<name>` in the trust domain
    /// `example.org`.
    pub(crate) fn process(&self, holder: &str, dns: &str) -> Result<Files> {
        let uri = SanType::URI(format!("spiffe://example.org/asp/{holder}").try_into()?);
        let here = SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
        self.sign(&holder.replace('/', "-"), vec![uri, here, SanType::DnsName(dns.try_into()?)])
    }

    /// A certificate with these names, in files that begin with `file`.
    pub(crate) fn sign(&self, file: &str, names: Vec<SanType>) -> Result<Files> {
        let key = KeyPair::generate()?;
        let mut leaf = CertificateParams::new(Vec::new())?;
        leaf.subject_alt_names = names;
        leaf.distinguished_name.push(DnType::CommonName, "ASP test process");
        leaf.use_authority_key_identifier_extension = true;
        let certificate = leaf.signed_by(&key, &self.issuer)?;
        let files = Files {
            authority: self.directory.join("authority.pem"),
            chain: self.directory.join(format!("{file}chain.pem")),
            key: self.directory.join(format!("{file}key.pem")),
        };
        fs::write(&files.chain, certificate.pem())?;
        fs::write(&files.key, key.serialize_pem())?;
        Ok(files)
    }
}
