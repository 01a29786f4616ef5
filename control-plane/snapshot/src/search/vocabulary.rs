//! Common words of English in a search: those that say nothing about a tool, and those that people say for the words in
//! names and descriptions of tools.

/// Words of a question that are not searched for.
const STOP_WORDS: &str = "a about again already also am an and any are as at be been being but by can could d did do does done \
    each every for from had has have having he her here him his how i if in into is it its just let like \
    ll m may me might mine must my need needs no not now of on one or other our please re right s shall \
    she should so some still t than that the their them then there these they this those to us ve want \
    wants was we were whom whose why will with without would yet you your";

/// Words of tools, each with words that mean the same in a question; all without the ending of
/// a plural.
const SYNONYMS: &[(&str, &str)] = &[
    ("create", "make new add open write start build file set prepare register fill raise"),
    ("get", "show read view see look check display fetch what who where when which how"),
    ("list", "show see which what all many count"),
    ("search", "find look"),
    ("delete", "remove drop erase"),
    ("update", "change edit modify set adjust upgrade move raise rename"),
    ("cancel", "stop abort off kill"),
    ("send", "tell post write mail say"),
    ("run", "execute invoke trigger start kick"),
    ("query", "plot chart graph measure"),
    ("approve", "accept confirm approval"),
    ("reject", "decline refuse deny"),
    ("restart", "reboot"),
    ("assign", "give hand"),
    ("transfer", "hand give"),
    ("merge", "join combine"),
    ("schedule", "plan book reserve"),
    ("download", "save"),
    ("upload", "put"),
    ("resolve", "fix solve"),
    ("publish", "release"),
    ("pause", "mute silence"),
    ("silence", "mute quiet"),
    ("revoke", "remove"),
    ("track", "follow locate"),
    ("export", "dump"),
    ("refund", "back"),
    ("email", "mail inbox"),
    ("message", "chat talk post"),
    ("comment", "note remark reply answer"),
    ("repository", "repo"),
    ("pull", "pr"),
    ("event", "meeting appointment call"),
    ("recurring", "weekly daily monthly repeat"),
    ("holiday", "vacation"),
    ("leave", "vacation absence"),
    ("person", "people member colleague"),
    ("employee", "person staff worker"),
    ("permission", "access right"),
    ("customer", "client"),
    ("invoice", "bill"),
    ("ticket", "issue bug task story"),
    ("parcel", "package box shipment"),
    ("instance", "machine vm server"),
    ("metric", "cpu memory usage latency"),
    ("incident", "outage page down"),
    ("opportunity", "deal"),
    ("candidate", "applicant"),
    ("weather", "rain temperature warm cold"),
    ("forecast", "weather rain temperature"),
    ("cost", "spend price expensive"),
    ("satisfaction", "happy"),
    ("signature", "signed sign"),
    ("itinerary", "trip travel journey plan"),
    ("deployment", "deploy"),
    ("reminder", "remind nudge"),
    ("reaction", "react"),
    ("invite", "add"),
    ("alert", "notify warn"),
    ("sign", "signature"),
    ("folder", "directory"),
    ("label", "tag"),
    ("role", "permission"),
    ("user", "people member account"),
];

pub(super) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.split(' ').any(|stop| stop == word)
}

/// Returns the words of tools that a word of a question may stand for.
pub(super) fn meanings(said: &str) -> impl Iterator<Item = &'static str> {
    let is_meant = move |(_, words): &&(&str, &str)| words.split(' ').any(|word| word == said);
    SYNONYMS.iter().filter(is_meant).map(|(meant, _)| *meant)
}
