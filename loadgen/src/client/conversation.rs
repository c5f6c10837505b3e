//! A conversation that grows turn by turn, as a chat client keeps it.
//!
//! Pure: it holds what has been said and never sends anything. Texts are kept escaped for JSON,
//! because they are written into every later request and never read again.

use fastrand::Rng;

use super::library::Library;
use super::seed::{self, Stream};
use super::text::{escape, escaped_text};

/// Stands for a reply without text, such as one that only calls a tool: an empty message would be
/// refused by some engines.
const EMPTY_REPLY: &str = "(no text)";

/// Who said a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    User,
    Assistant,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) role: Role,
    /// JSON-escaped, without quotes.
    pub(crate) text: String,
}

/// What has been said so far.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// Random per conversation; what clients send as their session.
    pub(crate) session_id: String,
    /// Group whose system prompt it uses; `None` has no system prompt.
    pub(crate) group: Option<usize>,
    pub(crate) messages: Vec<Message>,
    turns_asked: u32,
    user_bytes: usize,
    rng: Rng,
}

impl Conversation {
    /// The `number`-th conversation of a workload.
    pub(crate) fn open(
        seed: u64,
        number: u64,
        library: &Library,
        user_bytes: usize,
    ) -> Conversation {
        let mut rng = seed::rng(seed, Stream::Conversation, number);
        let group = Some(library.group(&mut rng));
        let session_id = seed::uuid(&mut rng);
        Conversation { session_id, group, messages: Vec::new(), turns_asked: 0, user_bytes, rng }
    }

    /// A single question whose text is given, escaped for JSON.
    pub(crate) fn of_one_question(seed: u64, number: u64, text: String) -> Conversation {
        let mut rng = seed::rng(seed, Stream::Conversation, number);
        let session_id = seed::uuid(&mut rng);
        let messages = vec![Message { role: Role::User, text }];
        Conversation { session_id, group: None, messages, turns_asked: 1, user_bytes: 0, rng }
    }

    /// Turns asked so far, including one that waits for its answer.
    pub(crate) fn turns_asked(&self) -> u32 {
        self.turns_asked
    }

    /// Adds the next user message.
    pub(crate) fn ask(&mut self) {
        self.turns_asked += 1;
        let text = escaped_text(&mut self.rng, self.user_bytes);
        self.messages.push(Message { role: Role::User, text });
    }

    /// Adds the reply to the last question.
    pub(crate) fn answer(&mut self, reply: &str) {
        let reply = if reply.is_empty() { EMPTY_REPLY } else { reply };
        self.messages.push(Message { role: Role::Assistant, text: escape(reply) });
    }

    /// Forgets a question that got no whole answer, so that the next one extends what was answered.
    pub(crate) fn take_back(&mut self) {
        if self.messages.last().is_some_and(|message| message.role == Role::User) {
            self.messages.pop();
        }
    }

    /// A pause before the next question, exponential with the given mean in seconds.
    pub(crate) fn think_s(&mut self, mean_s: f64) -> f64 {
        seed::exponential(&mut self.rng, mean_s)
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::{Shape, Sizes};
    use super::*;

    fn conversation(number: u64) -> Conversation {
        let library = Library::new(1, Shape::Plain, &Sizes::of(Shape::Plain));
        Conversation::open(1, number, &library, 50)
    }

    #[test]
    fn each_turn_extends_the_one_before() {
        let mut talk = conversation(1);
        talk.ask();
        let first = talk.messages.clone();
        talk.answer("well, \"yes\"");
        talk.ask();
        assert_eq!(talk.turns_asked(), 2);
        assert_eq!(talk.messages.len(), 3);
        assert_eq!(talk.messages[..1], first);
        assert_eq!(talk.messages[1].text, "well, \\\"yes\\\"");
        assert_ne!(talk.messages[2], talk.messages[0]);
    }

    #[test]
    fn a_question_without_an_answer_is_taken_back() {
        let mut talk = conversation(1);
        talk.ask();
        talk.answer("yes");
        let answered = talk.messages.clone();
        talk.ask();
        talk.take_back();
        assert_eq!(talk.messages, answered);
        talk.take_back();
        assert_eq!(talk.messages, answered, "an answer stays");
        assert_eq!(talk.turns_asked(), 2, "the lost turn counts");
    }

    #[test]
    fn conversations_of_one_seed_have_texts_of_their_own() {
        let (mut first, mut second, mut again) =
            (conversation(1), conversation(2), conversation(1));
        for talk in [&mut first, &mut second, &mut again] {
            talk.ask();
        }
        assert_eq!(first.messages, again.messages);
        assert_ne!(first.messages, second.messages);
        assert_ne!(first.session_id, second.session_id);
    }
}
