//! Throw-away certificates.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};

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
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        fs::write(directory.join("authority.pem"), parameters.self_signed(&key)?.pem())?;
        Ok(Authority { directory: directory.to_owned(), issuer: Issuer::new(parameters, key) })
    }

    /// A certificate of a process of the platform on this machine, `<role>/<name>` in the trust domain
    /// `example.org`.
    pub(crate) fn process(&self, holder: &str, dns: &str) -> Result<Files> {
        self.sign(&holder.replace('/', "-"), names(holder, dns)?)
    }

    /// The same, good until the first day of `year` and with this serial number, in files that begin with `file`.
    pub(crate) fn process_until(&self, file: &str, holder: &str, serial: u64, year: i32) -> Result<Files> {
        let mut leaf = leaf(names(holder, crate::peers::NAME)?)?;
        leaf.serial_number = Some(SerialNumber::from(serial));
        leaf.not_after = date_time_ymd(year, 1, 1);
        self.write(file, &leaf)
    }

    /// Writes a list of certificates that are taken back; its file.
    pub(crate) fn revoke(&self, serials: &[u64]) -> Result<PathBuf> {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2999, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let file = self.directory.join("revoked.pem");
        fs::write(&file, list.signed_by(&self.issuer)?.pem()?)?;
        Ok(file)
    }

    /// A certificate with these names, in files that begin with `file`.
    pub(crate) fn sign(&self, file: &str, names: Vec<SanType>) -> Result<Files> {
        self.write(file, &leaf(names)?)
    }

    fn write(&self, file: &str, leaf: &CertificateParams) -> Result<Files> {
        let key = KeyPair::generate()?;
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

/// The names of a process of the platform on this machine.
fn names(holder: &str, dns: &str) -> Result<Vec<SanType>> {
    let uri = SanType::URI(format!("spiffe://example.org/asp/{holder}").try_into()?);
    let here = SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
    Ok(vec![uri, here, SanType::DnsName(dns.try_into()?)])
}

fn leaf(names: Vec<SanType>) -> Result<CertificateParams> {
    let mut leaf = CertificateParams::new(Vec::new())?;
    leaf.subject_alt_names = names;
    leaf.distinguished_name.push(DnType::CommonName, "ASP test process");
    leaf.use_authority_key_identifier_extension = true;
    Ok(leaf)
}
