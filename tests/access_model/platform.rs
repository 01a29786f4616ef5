//! The platform without its wires: the control plane's builder, an edge and a gateway that apply what it publishes.
//!
//! Keeps true: nothing is decided here. What a gateway does between a request and a call is done in the order of
//! `control-plane/gateway/src/http.rs`, by the same functions.

use std::sync::Arc;

use asp_call::call::outcome::Refusal;
use asp_control::catalog::build::Builder;
use asp_control::catalog::fault::Part;
use asp_control::catalog::{Compiler, StaticConfig};
use asp_edge::{
    Caller, Edge, EdgeRole, Env, MACHINE_ISSUER, Reason, RecentList, Reply, RequestFacts, Step, Trace,
    Verdict,
};
use asp_issuers::trust::{StaticIssuers, Trust};
use asp_pipeline::pipeline::entitlement::{
    HiddenPart, MachineCredential, ServerView, entitle, identify, machine,
};
use asp_proto::snapshot::{AuthScheme, Protocol, SnapshotPart};
use asp_snapshot::{Snapshot, VirtualServer};
use asp_store::control::{ControlState, StateUpdate};

use crate::answer::{Access, Answer, Passage};
use crate::credentials::{
    Credential, Credentials, PUBLIC_URL, Question, fingerprint, key, now_ms, wrong_key,
};
use crate::world::{PRIMITIVES, Text};

/// Name and value of a header.
type Header = (Text, String);

/// Everything that decides about a request.
pub(crate) struct Platform {
    builder: Builder,
    filter: Edge,
    at_edge: asp_edge::Snapshot,
    /// The edge's code in the gateway.
    entry: Edge,
    gateway: Snapshot,
}

impl Platform {
    pub(crate) fn start() -> Platform {
        let config = StaticConfig {
            public_url: PUBLIC_URL.into(),
            // Servers that ask nobody who they are are for development.
            dev: true,
            workers: 1,
            trust: Trust::new(StaticIssuers::default()),
            upstreams: Vec::new(),
            default_agent: String::new(),
            agent_hosts: Vec::new(),
            all_servers: false,
            unauthenticated_rate: 0,
        };
        Platform {
            builder: Builder::new(Compiler::new(config)),
            filter: Edge::new(EdgeRole::Filter),
            at_edge: asp_edge::Snapshot::boot(),
            entry: Edge::new(EdgeRole::Gateway),
            gateway: Snapshot::empty(),
        }
    }

    /// Builds what is stored, and applies it at the edge and at the gateway, there as the parts that have changed.
    pub(crate) fn publish(&mut self, state: ControlState) {
        let built = self.builder.build(StateUpdate::All(state), false).unwrap();
        // Of orgs, because records that mean nothing and machines beyond their bound are named.
        let mut others = built.faults.iter().filter(|fault| fault.part != Part::Org);
        assert_eq!(others.next(), None);
        let recent = RecentList::from_message((*built.recent).clone()).unwrap();
        let edge = asp_edge::Snapshot::from_message((*built.edge).clone()).unwrap();
        self.at_edge = edge.with_recent(&Arc::new(recent));
        let changes = built.changed.iter().map(|name| {
            let part = built
                .gateway
                .get(name)
                .map(|part| SnapshotPart { part: part.read(), ..SnapshotPart::default() });
            (name.to_string(), part)
        });
        self.gateway = self.gateway.changed(built.position.revision, changes.collect()).unwrap();
    }

    /// Sends a request through the edge, and past it to the gateway.
    pub(crate) fn answer(&self, credentials: &Credentials, question: &Question) -> Answer {
        let headers = headers(credentials, question);
        let env = Env { now_ms: now_ms(), random: [0; 8], trace: Trace::new([1; 24]) };
        let edge = match passage(&self.filter, &self.at_edge, &headers, &env) {
            Ok(admitted) if admitted.unverified => Passage::Unjudged,
            Ok(_) => Passage::Admitted,
            Err(reason) => Passage::Refused(reason),
        };
        let entered = self.enter(question, &headers, &env);
        let server = self.gateway.server(question.server);
        let caller = server.and_then(|server| match &entered {
            Ok(admitted) => Some(identify(admitted, server).unwrap()),
            Err(Reason::UnknownServer | Reason::InsufficientScope) => {
                self.claimed(credentials, question, server)
            }
            Err(_) => None,
        });
        let known = server.zip(caller);
        let primitives = known.map(|(server, caller)| self.accesses(server, &caller, question));
        Answer { edge, gateway: entered.map(drop), primitives }
    }

    /// Evaluates a request at the gateway, for the machine that it finds where the edge's code could not tell.
    fn enter(&self, question: &Question, headers: &[Header], env: &Env) -> Result<RequestFacts, Reason> {
        let edge = &self.gateway.edge;
        let admitted = passage(&self.entry, edge, headers, env)?;
        if !admitted.unverified {
            return Ok(admitted);
        }
        let server = self.gateway.server(question.server).unwrap();
        if let Some(caller) = self.machine(question.credential, server) {
            let found = self.entry.admit(edge, admitted, Arc::new(caller), env);
            return found.map_err(|reply| reason(&reply));
        }
        let fault = match question.credential {
            Credential::Nothing => Reason::TokenMissing,
            _ => Reason::TokenInvalid,
        };
        Err(reason(&self.entry.unproved(edge, &admitted, fault, env)))
    }

    fn machine(&self, credential: Credential, server: &VirtualServer) -> Option<Caller> {
        let of = |credential: MachineCredential<'_>| machine(&self.gateway, server, credential);
        let found = match credential {
            Credential::Key(number) => of(MachineCredential::Key(&key(number))),
            Credential::WrongKey(number) => of(MachineCredential::Key(&wrong_key(number))),
            Credential::Certificate(number) => of(MachineCredential::Certificate {
                fingerprint: fingerprint(number),
                uri: None,
                all_uris: &[],
            }),
            Credential::Nothing | Credential::Token(_) => None,
        };
        found.inspect(|caller| {
            assert!(caller.issuer == MACHINE_ISSUER && self.gateway.machines.has(caller));
        })
    }

    /// Returns the caller of a request that was refused, for whom entitlement must refuse it too.
    fn claimed(
        &self,
        credentials: &Credentials,
        question: &Question,
        server: &VirtualServer,
    ) -> Option<Arc<Caller>> {
        match question.credential {
            _ if server.accepts(AuthScheme::None) => None,
            Credential::Token(number) => Some(Arc::new(caller(credentials, number))),
            credential => self.machine(credential, server).map(Arc::new),
        }
    }

    /// Asks the gateway's entitlement, for lists and for calls.
    fn accesses(&self, server: &VirtualServer, caller: &Caller, question: &Question) -> [Access; 2] {
        let protocol = match question.protocol {
            "mcp" => Protocol::Mcp,
            _ => Protocol::Rest,
        };
        let mut view = ServerView::of(&self.gateway, server, caller, protocol);
        PRIMITIVES.map(|word| {
            let id = format!("{word}-{}", question.server);
            let entry = server.entries.iter().find(|entry| entry.primitive.id == id).unwrap();
            let hidden = view.hidden(entry);
            let entitled = entitle(&self.gateway, server, caller, entry, protocol);
            let is_unknown = matches!(entitled, Err(Refusal::Unknown));
            assert_eq!(hidden.is_some(), is_unknown, "list and call agree (I-10): {question:?}");
            match (hidden, entitled) {
                (Some(HiddenPart::Server), _) => Access::NoServer,
                (Some(HiddenPart::Primitive), _) => Access::Hidden,
                (None, Err(Refusal::MissingScopes { .. })) => Access::LacksScopes,
                (None, Err(refusal)) => panic!("{refusal:?}"),
                (None, Ok(entitled)) if entitled.needs_approval => Access::NeedsApproval,
                (None, Ok(_)) => Access::Allowed,
            }
        })
    }
}

fn headers(credentials: &Credentials, question: &Question) -> Vec<Header> {
    let path = match question.protocol {
        "mcp" => format!("/{}/mcp", question.server),
        _ => format!("/{0}/rest/look-{0}", question.server),
    };
    let authority = PUBLIC_URL.trim_start_matches("https://");
    let mut headers: Vec<Header> = vec![
        (":method", "POST".into()),
        (":path", path),
        (":authority", authority.into()),
        ("content-type", "application/json".into()),
    ];
    let authorization = credentials.authorization(question.credential);
    headers.extend(authorization.map(|value| ("authorization", value)));
    headers
}

/// Evaluates the headers of a request.
fn passage(
    edge: &Edge,
    snapshot: &asp_edge::Snapshot,
    headers: &[Header],
    env: &Env,
) -> Result<RequestFacts, Reason> {
    match edge.on_headers(snapshot, headers, false, env) {
        Step::Decided(Verdict::Reply(reply)) => Err(reason(&reply)),
        Step::Decided(Verdict::Forward(forward)) => Ok(forward.admitted),
        Step::NeedBody(pending) => Ok(pending.admitted),
    }
}

fn reason(reply: &Reply) -> Reason {
    reply.reason.unwrap()
}

/// Returns what the edge's code reads in a token.
fn caller(credentials: &Credentials, number: usize) -> Caller {
    let token = &credentials.tokens[number];
    let owned = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
    Caller {
        org: token.org.into(),
        user: token.user.into(),
        groups: owned(token.groups),
        scopes: owned(token.scopes),
        client: "cli".into(),
        wcit: token.jti.into(),
        digest: [0; 32],
        issuer: token.issuer.into(),
        issued_at: 0,
        expires_at: u64::MAX,
    }
}
