//! `asp upgrade`: what a running installation needs so that today's calls still work after an upgrade.
//!
//! Owns the order: read, evaluate, print, store the offers. Keeps true: nothing is written without `--write`, and with it
//! only offers.

mod a2a;
mod installation;
mod issuers;
mod notes;
mod offers;
mod open_allows;
mod private_networks;
mod report;
mod setting_names;
mod settings;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, ToSocketAddrs as _};

use asp_command::environment::{Environment, ProcessEnvironment};
use asp_command::failure::Failure;
use asp_command::print;
use asp_issuers::document::File;
use reqwest::StatusCode;
use serde_json::Value;

use super::client::{AdminClient, api_path, block_on};
use crate::args::upgrade::{CheckArgs, UpgradeCommand};
use crate::settings::ENV_ISSUERS;
use crate::settings::given::GivenSettings;
use installation::Installation;
use offers::MissingOffer;
use report::{Section, UpgradeReport};

/// Port for looking up a name; any port would do.
const HTTPS: u16 = 443;

/// Runs one of the commands.
pub fn run(command: &UpgradeCommand) -> Result<(), Failure> {
    match command {
        UpgradeCommand::Check(args) => check(args),
    }
}

fn check(args: &CheckArgs) -> Result<(), Failure> {
    let given = GivenSettings::read(&args.settings).map_err(Failure::Configuration)?;
    let file = issuers_file(&given)?;
    let api = AdminClient::new(&ProcessEnvironment)?;
    block_on(async {
        let installation = Installation::read(&api).await?;
        let mut missing = offers::missing_offers(&installation);
        if args.write {
            missing = store(&api, &installation, missing, args).await?;
        }
        let mut report = report(&given, &file, &installation, &missing, &addresses);
        report.add(Section::Names, setting_names::lines(&given.names()));
        if args.json {
            print::json(&report.to_json());
        } else {
            report.print();
        }
        if report.is_done() { Ok(()) } else { Err(Failure::Refused) }
    })
}

/// Reads the operator's issuers. If their file is on another machine only, it is not checked, and a line says so.
fn issuers_file(given: &GivenSettings) -> Result<File, Failure> {
    let Some(path) = given.get(ENV_ISSUERS) else { return Ok(File::default()) };
    asp_issuers::file(path.as_ref()).map_err(|error| Failure::bad(ENV_ISSUERS, error.to_string()))
}

/// Collects everything to be done, and what the operator should look at.
fn report(
    environment: &dyn Environment,
    file: &File,
    installation: &Installation,
    missing: &[MissingOffer],
    resolve: &dyn Fn(&str) -> Vec<IpAddr>,
) -> UpgradeReport {
    let mut report = UpgradeReport::default();
    report.add(Section::Servers, notes::refused_servers(installation));
    for (section, line) in settings::lines(environment, installation) {
        report.add(section, vec![line]);
    }
    report.add(Section::RuntimeSettings, private_networks::lines(environment, installation, resolve));
    report.add(Section::Issuers, issuers::lines(environment, file, installation));
    report.add(Section::Offers, missing.iter().map(|offer| offer.item(installation.has_offers)).collect());
    report.note(notes::plugin_tokens(installation));
    report.note(notes::machines(installation));
    report.note(notes::shared_limits(installation));
    report.note(open_allows::notes(file, installation));
    report.note(a2a::notes(installation));
    report
}

/// Returns the addresses of a host as resolved by this machine.
fn addresses(host: &str) -> Vec<IpAddr> {
    let found = (host, HTTPS).to_socket_addrs();
    found.map(|found| found.map(|address| address.ip()).collect()).unwrap_or_default()
}

/// Stores offers and returns the ones that were not stored.
async fn store(
    api: &AdminClient,
    installation: &Installation,
    missing: Vec<MissingOffer>,
    args: &CheckArgs,
) -> Result<Vec<MissingOffer>, Failure> {
    if !installation.has_offers {
        return Err(Failure::bad("--write", "the control plane that runs knows no offers: upgrade it first"));
    }
    let mut left = Vec::new();
    for offer in missing {
        if offer.mark.is_some() && !args.all {
            left.push(offer);
            continue;
        }
        let path = api_path(&["api", "registry", "servers", &offer.server, "offers", &offer.org]);
        let answer = api.put(&path, &Value::Null).await?;
        if answer.status == StatusCode::NOT_FOUND {
            // The server was deleted since.
            continue;
        }
        answer.accepted()?;
        let report: fn(&str) = if args.json { print::note } else { print::line };
        report(&format!("# stored: {} is offered to {}", offer.server, offer.org));
    }
    Ok(left)
}
