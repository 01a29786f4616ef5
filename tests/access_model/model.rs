//! Who may call what, as plainly as it can be said: every record is looked at for every request.
//!
//! Keeps true: nothing here is taken from the code under test but the records themselves and the names of refusals.

use asp_edge::Reason;

use crate::answer::{Access, Answer, Passage};
use crate::credentials::{Credential, Credentials, MACHINE_IDS, Question};
use crate::turned::Turned;
use crate::world::{
    ISSUERS, List, Machine, PRIMITIVES, PrimitiveFile, ServerFile, Text, UNREADABLE_PROTOCOL, World,
};

mod bindings;

/// Issuer of machines in [`Who`].
const MACHINES_ISSUER: Text = "machines";

/// A caller.
#[derive(Clone, Copy)]
struct Who {
    org: Text,
    user: Text,
    groups: List,
    scopes: List,
    wcit: Text,
    issuer: Text,
    is_machine: bool,
}

/// Caller of a server that asks nobody who they are.
const NOBODY: Who =
    Who { org: "", user: "anonymous", groups: &[], scopes: &[], wcit: "", issuer: "", is_machine: false };

/// The model of one world, with all rules or with one of them turned round.
pub(crate) struct Model<'a> {
    pub(crate) world: &'a World,
    pub(crate) credentials: &'a Credentials,
    pub(crate) turned: Option<Turned>,
}

impl Model<'_> {
    fn is(&self, rule: Turned) -> bool {
        self.turned != Some(rule)
    }

    pub(crate) fn answer(&self, question: &Question) -> Answer {
        let gateway = self.enter(question);
        let edge = match gateway {
            _ if self.is_unjudged(question) => Passage::Unjudged,
            Ok(()) => Passage::Admitted,
            Err(reason) => Passage::Refused(reason),
        };
        Answer { edge, gateway, primitives: self.primitives(question, gateway) }
    }

    /// The server that a request names, if it speaks the request's protocol.
    fn server(&self, question: &Question) -> Option<&ServerFile> {
        let file = self.world.servers.get(question.server)?;
        self.speaks(file, question).then_some(file)
    }

    fn speaks(&self, file: &ServerFile, question: &Question) -> bool {
        file.protocols.contains(&question.protocol) || !self.is(Turned::ServersSpeakTheirProtocols)
    }

    /// Whether the edge cannot tell who calls: it knows no machine.
    fn is_unjudged(&self, question: &Question) -> bool {
        let Some(file) = self.server(question) else { return false };
        match question.credential {
            _ if file.is_open() => false,
            Credential::Key(_) | Credential::WrongKey(_) => file.accepts("psk"),
            Credential::Token(_) => file.accepts("mtls") && !file.accepts("jwt"),
            Credential::Certificate(_) | Credential::Nothing => file.accepts("mtls"),
        }
    }

    /// Whether a request enters the server: who calls, exposure, scopes of the server.
    fn enter(&self, question: &Question) -> Result<(), Reason> {
        let file = self.server(question).ok_or(Reason::UnknownServer)?;
        let who = self.who(question, file)?;
        let lacks = self.is(Turned::ServersWantTheirScopes) && self.lacks(file.scopes, who);
        match self.exposed(question, file, who.org) {
            false if lacks && !self.is(Turned::UnknownBeforeScopes) => Err(Reason::InsufficientScope),
            false => Err(Reason::UnknownServer),
            true if lacks => Err(Reason::InsufficientScope),
            true => Ok(()),
        }
    }

    fn lacks(&self, needed: List, who: Who) -> bool {
        let mut missing = needed.iter().map(|scope| !who.scopes.contains(scope));
        match self.is(Turned::AllScopesAreNeeded) {
            true => missing.any(|is_missing| is_missing),
            false => !needed.is_empty() && missing.all(|is_missing| is_missing),
        }
    }

    fn who(&self, question: &Question, file: &ServerFile) -> Result<Who, Reason> {
        if file.is_open() && self.is(Turned::OpenServersAskNobody) {
            return Ok(NOBODY);
        }
        let takes_keys = file.accepts("psk") || !self.is(Turned::KeysNeedTheirScheme);
        let takes_certificates = file.accepts("mtls") || !self.is(Turned::CertificatesNeedTheirScheme);
        let found = match question.credential {
            Credential::Nothing => return Err(Reason::TokenMissing),
            Credential::Certificate(_) if !takes_certificates => return Err(Reason::TokenMissing),
            Credential::Certificate(number) => self.machine(number),
            Credential::Key(number) if takes_keys => self.machine(number),
            Credential::WrongKey(number) if takes_keys && !self.is(Turned::SecretsCount) => {
                self.machine(number)
            }
            Credential::Key(_) | Credential::WrongKey(_) => None,
            Credential::Token(number) => Some(self.token(number)).filter(|who| self.accepts_token(file, who)),
        };
        found.ok_or(Reason::TokenInvalid)
    }

    /// The caller of a token, whoever accepts it.
    fn token(&self, number: usize) -> Who {
        let token = &self.credentials.tokens[number];
        Who {
            org: token.org,
            user: token.user,
            groups: token.groups,
            scopes: token.scopes,
            wcit: token.jti,
            issuer: token.issuer,
            is_machine: false,
        }
    }

    fn accepts_token(&self, file: &ServerFile, who: &Who) -> bool {
        let is_named = file.issuers.contains(&who.issuer) || !self.is(Turned::IssuersAreNamedByServers);
        let mut spoken = ISSUERS.into_iter().zip(self.world.issuers).filter(|(name, _)| *name == who.issuer);
        let speaks = spoken.any(|(_, orgs)| orgs.iter().any(|pattern| fits(pattern, who.org)));
        file.accepts("jwt") && is_named && (speaks || !self.is(Turned::IssuersSpeakForTheirOrgs))
    }

    /// A machine whose key or certificate opens something: it has not ended, and has no more than machines of its org
    /// may have, whenever it was stored.
    fn machine(&self, number: usize) -> Option<Who> {
        let machine = self.world.machines[number].as_ref()?;
        if machine.has_ended && self.is(Turned::EndedMachinesAreNobody) || !self.is_bounded(machine) {
            return None;
        }
        Some(Who {
            org: machine.org,
            user: machine.name,
            groups: machine.groups,
            scopes: machine.scopes,
            wcit: MACHINE_IDS[number],
            issuer: MACHINES_ISSUER,
            is_machine: true,
        })
    }

    fn is_bounded(&self, machine: &Machine) -> bool {
        let of_org = |org: &str| org == machine.org || !self.is(Turned::BoundsAreOfOneOrg);
        let former = self.world.former_bounds.iter().filter(|_| !self.is(Turned::BoundsCountAtOnce));
        let bounds: Vec<_> =
            self.world.bounds.iter().chain(former).filter(|(org, _)| of_org(org)).map(|(_, b)| b).collect();
        let has_group = |group: &&str| bounds.iter().any(|bound| bound.groups.contains(*group));
        let has_scope = |scope: &&str| bounds.iter().any(|bound| bound.scopes.contains(*scope));
        (machine.groups.iter().all(has_group) || !self.is(Turned::GroupsAreBounded))
            && (machine.scopes.iter().all(has_scope) || !self.is(Turned::ScopesAreBounded))
    }

    /// Whether the server exists for callers of an org: it is offered, and on. `org` is empty for nobody.
    fn exposed(&self, question: &Question, file: &ServerFile, org: &str) -> bool {
        let server = question.server;
        let offered = self.offered(server, file, org);
        let at_first = match file.allow {
            true => self.is(Turned::AllowIsOn),
            false => offered && !self.is(Turned::NamedOffersAreOffAtFirst),
        };
        let hides = self.world.exposure.get(&(org, server, UNREADABLE_PROTOCOL)) == Some(&false);
        if hides && self.is(Turned::UnreadableSwitchesHide) {
            return false;
        }
        match self.switched(question, org) {
            Some(true) if offered || !self.is(Turned::OfferIsNeeded) => true,
            Some(false) if self.is(Turned::SwitchedOffIsOff) => false,
            _ => at_first,
        }
    }

    /// The org's exposure of the server over the protocol, if it has said something.
    fn switched(&self, question: &Question, org: &str) -> Option<bool> {
        let Question { server, protocol, .. } = *question;
        let own = self.world.exposure.get(&(org, server, protocol)).copied();
        let counts = |(of_org, of_server, of_protocol): &(&str, &str, &str)| {
            (*of_org == org || !self.is(Turned::ExposureIsOfOneOrg))
                && (*of_server == server || !self.is(Turned::ExposureIsOfOneServer))
                && (*of_protocol == protocol || !self.is(Turned::ExposureIsOfOneProtocol))
                && *of_protocol != UNREADABLE_PROTOCOL
        };
        own.or_else(|| self.world.exposure.iter().find(|(key, _)| counts(key)).map(|(_, enabled)| *enabled))
    }

    fn offered(&self, server: &str, file: &ServerFile, org: &str) -> bool {
        let to_org = |to: &str| to == org || !self.is(Turned::OffersAreOfOneOrg);
        let of_server = |of: &str| of == server || !self.is(Turned::OffersAreOfOneServer);
        let withdrawn = self.world.former_offers.iter().filter(|_| !self.is(Turned::WithdrawnOffersEnd));
        let mut stored = self.world.offers.iter().chain(withdrawn);
        (self.is(Turned::FilesOffer) && file.offered_to.iter().any(|to| to_org(to)))
            || (self.is(Turned::StoredOffersCount) && stored.any(|(of, to)| of_server(of) && to_org(to)))
    }

    fn primitives(&self, question: &Question, gateway: Result<(), Reason>) -> Option<[Access; 2]> {
        let file = self.world.servers.get(question.server)?;
        let who = match (gateway, question.credential) {
            (Ok(()), _) => self.who(question, file).ok()?,
            (Err(Reason::UnknownServer | Reason::InsufficientScope), _) if file.is_open() => return None,
            (Err(Reason::UnknownServer | Reason::InsufficientScope), Credential::Token(number)) => {
                self.token(number)
            }
            (Err(Reason::UnknownServer | Reason::InsufficientScope), _) => self.who(question, file).ok()?,
            (Err(_), _) => return None,
        };
        Some([0, 1].map(|place| self.access(question, file, place, who)))
    }

    fn access(&self, question: &Question, file: &ServerFile, place: usize, who: Who) -> Access {
        if !self.speaks(file, question) || !self.exposed(question, file, who.org) {
            return Access::NoServer;
        }
        let PrimitiveFile { mutation, is_risky, scopes } = file.primitives[place];
        let id = format!("{}-{}", PRIMITIVES[place], question.server);
        let bound = self.decide(who, &id, question.protocol);
        let lacks = self.is(Turned::PrimitivesWantTheirScopes) && self.lacks(scopes, who);
        let is_dangerous = (mutation == "destructive" && self.is(Turned::DestructiveNeedsApproval))
            || (is_risky && self.is(Turned::RiskyNeedsApproval));
        match bound {
            Some(false) if lacks && !self.is(Turned::DeniedBeforeScopes) => Access::LacksScopes,
            Some(false) => Access::Hidden,
            _ if lacks => Access::LacksScopes,
            Some(true) if self.is(Turned::AllowsStandForApproval) => Access::Allowed,
            _ if is_dangerous => Access::NeedsApproval,
            _ => Access::Allowed,
        }
    }
}

/// Whether a pattern (a name, `prefix*` or `*`) names something.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}
