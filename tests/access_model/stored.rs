//! A world as the control plane's store has it: the files of its servers, and the records about its orgs.

use asp_store::control::{
    CertificateName, ControlState, ExposureRecord, IssuerRecord, MachineCertificateRecord, MachineKeyRecord,
    OfferRecord, ServerRecord, Side, SourceFile,
};
use serde_json::json;

use crate::credentials::{Credentials, KEYS, MACHINE_IDS, fingerprint, hash, hex, iss, now_ms};
use crate::world::{ISSUERS, Machine, PRIMITIVES, PrimitiveFile, ServerFile, World};

/// Life of a machine's key or certificate that has not ended.
const LIFE_MS: u64 = 3_600_000;

/// Returns all that is stored at a revision.
pub(crate) fn state(world: &World, credentials: &Credentials, revision: u64) -> ControlState {
    let written = world.servers_written;
    let offer = |(server, org): &(&str, &str)| OfferRecord { server: (*server).into(), org: (*org).into() };
    let exposure = |((org, server, protocol), enabled): (&(&str, &str, &str), &bool)| ExposureRecord {
        org: (*org).into(),
        server: (*server).into(),
        protocol: (*protocol).into(),
        enabled: *enabled,
    };
    let issuers = ISSUERS.into_iter().zip(world.issuers);
    let mut state = ControlState {
        revision,
        servers: world.servers.iter().map(|(name, file)| server(name, file, written)).collect(),
        offers: world.offers.iter().map(offer).collect(),
        exposure: world.exposure.iter().map(exposure).collect(),
        bindings: world.bindings.clone(),
        issuers: issuers.map(|(name, orgs)| issuer(name, orgs, credentials, revision)).collect(),
        ..ControlState::default()
    };
    state.machines.bounds = world.bounds.iter().map(|(org, bound)| ((*org).into(), bound.clone())).collect();
    let there = world.machines.iter().enumerate();
    for (number, machine) in there.filter_map(|(number, machine)| Some((number, machine.as_ref()?))) {
        match number < KEYS {
            true => state.machines.keys.push(machine_key(number, machine)),
            false => state.machines.certificates.push(machine_certificate(number, machine)),
        }
    }
    state
}

fn issuer(name: &str, orgs: &[&str], credentials: &Credentials, revision: u64) -> IssuerRecord {
    let document = json!({
        "iss": iss(name), "jwks": { "keys": [credentials.jwk] }, "algs": ["ES256"], "orgs": orgs,
    });
    IssuerRecord {
        side: Side::Clients,
        name: name.into(),
        document: document.to_string(),
        revision,
        updated_at: 0,
    }
}

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns when it was made and when it ends.
fn times(machine: &Machine) -> (u64, u64) {
    let now = now_ms();
    (now - 10_000, if machine.has_ended { now - 1_000 } else { now + LIFE_MS })
}

fn machine_key(number: usize, machine: &Machine) -> MachineKeyRecord {
    let (created_at, expires_at) = times(machine);
    MachineKeyRecord {
        id: MACHINE_IDS[number].into(),
        org: machine.org.into(),
        machine: machine.name.into(),
        hash: hash(number),
        groups: owned(machine.groups),
        scopes: owned(machine.scopes),
        created_at,
        expires_at,
    }
}

fn machine_certificate(number: usize, machine: &Machine) -> MachineCertificateRecord {
    let (created_at, expires_at) = times(machine);
    MachineCertificateRecord {
        id: MACHINE_IDS[number].into(),
        org: machine.org.into(),
        machine: machine.name.into(),
        name: CertificateName::Fingerprint(hex(&fingerprint(number))),
        proved: true,
        groups: owned(machine.groups),
        scopes: owned(machine.scopes),
        created_at,
        expires_at,
    }
}

fn listed<T: AsRef<str>>(list: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = list.into_iter().map(|name| name.as_ref().to_owned()).collect();
    format!("[{}]", names.join(", "))
}

fn server(name: &str, file: &ServerFile, revision: u64) -> ServerRecord {
    let offers = match file.allow {
        true => "defaultExposure: allow".to_owned(),
        false => format!("offeredTo: {}", listed(&file.offered_to)),
    };
    let auth = format!(
        "{{schemes: {}, issuers: {}, scopes: {}}}",
        listed(file.schemes),
        listed(file.issuers),
        listed(file.scopes)
    );
    let references = listed(PRIMITIVES.map(|word| format!("{{ref: {name}/{word}-{name}}}")));
    let yaml = format!(
        "apiVersion: asp/v1\nname: {name}\ndescription: A server.\nprotocols: {}\n{offers}\nauth: {auth}\n\
         primitives: {references}\n",
        listed(file.protocols)
    );
    let mut files = vec![SourceFile { path: format!("{name}/server.yaml"), text: yaml }];
    for (word, primitive) in PRIMITIVES.into_iter().zip(&file.primitives) {
        let id = format!("{word}-{name}");
        let text = spec(&id, primitive, file.schemes[0]);
        files.push(SourceFile { path: format!("{name}/{id}.yaml"), text });
    }
    let content_hash = String::new();
    ServerRecord {
        name: name.to_owned(),
        files,
        unreadable: None,
        content_hash,
        revision,
        updated_at: 0,
        a2a_confirmed: true,
        disabled: Vec::new(),
    }
}

fn spec(id: &str, primitive: &PrimitiveFile, scheme: &str) -> String {
    let PrimitiveFile { mutation, is_risky, scopes } = primitive;
    let risk = if *is_risky { "high" } else { "low" };
    let scopes = listed(*scopes);
    format!(
        "id: {id}\nname: Sample\ntype: tool\nversion: 1.0.0\nowner: a@example.com\nsummary: A sample.\n\
         mutation: {mutation}\nprimitiveSchema: {{input_schema: {{type: object}}}}\n\
         runtime: {{mode: builtin, entrypoint: echo}}\n\
         security: {{riskClass: {risk}, auth: {{type: {scheme}, scopes: {scopes}}}}}\n"
    )
}
