package memory_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"remora/memory"
	"remora/memory/turnrecord"
	"remora/wire"
	"remora/wire/dialects"
)

// shape is a request as a real client sends it, in a session of its own.
//
// A turn is spelled "tools=a,b model=x format=json_schema side=kind history=server cut=upstream | words -> reply": words as say has
// them, and what the request says beside them before the bar, or where its answer broke off. A text with spaces has _ for each. The
// reply - says nothing.
type shape struct {
	client, name string
	said         []string // the session so far
	asks         string   // the request, without a reply
	place        string   // BEFORE, ALONE, SIDE or LINE, for a line that is known, and the rule
	view         string   // what upstream gets; empty for what the client sent
	only         wire.Dialect
}

// Texts of clients, shortened to the recognised parts.
const (
	openWebUI = "u:###_Task:_Generate_%s_the_chat_history._###_Output:_JSON._### Chat_History:_<chat_history>_USER:_How_do_I_bake_bread?_ASSISTANT:_With_flour,_water,_salt_and_time._USER:_And_rolls?_ASSISTANT:_The_same,_but_smaller._</chat_history>"
	summary   = "We_have_read_the_parser,_found_that_it_counts_bytes_where_it_should_count_runes,_and_changed_the_three_places_that_matter."
	observed  = "Observation:_found_it"
	react     = "Answer_as_well_as_you_can._Think_first,_then_act,_then_observe,_and_so_on._Begin_with_a_thought,_and_end_with_an_answer.¶Question:_"
)

func webUI(what string) string { return strings.ReplaceAll(fmt.Sprintf(openWebUI, what), " ", "_") }

// agentSaid is a session of an agent that resends its history, with two questions asked.
func agentSaid() []string {
	return []string{"tools=ls,edit | s:agent u:1 -> c:x", "tools=ls,edit | s:agent u:1 c:x r:x -> a:1", "tools=ls,edit | s:agent u:1 c:x r:x a:1 u:2 -> a:2"}
}

// chatSaid is a session of a chat page that resends its history and has no tools, newSaid one of a client that sends
// only new items.
func chatSaid() []string { return []string{"| u:1 -> a:1", "| u:1 a:1 u:2 -> a:2"} }
func newSaid() []string  { return []string{"| s:be u:1 -> a:1", "| s:be u:2 -> a:2"} }

// supervisedSaid is a session of a router and its workers, who get each other's answers as messages of the user.
func supervisedSaid() []string {
	return []string{
		"format=json_schema | s:route u:1 -> a:research", "tools=search | s:research u:1 -> c:x", "tools=search | s:research u:1 c:x r:x -> a:" + summary,
		"format=json_schema | s:route u:1 u:" + summary + " -> a:code",
	}
}

func clientShapes() []shape {
	return []shape{
		// Coding agents.
		{client: "opencode", name: "title at the first question", asks: "| s:You_are_a_title_generator._You_output_ONLY_a_thread_title. u:Generate_a_title_for_this_conversation: u:fix", place: "SIDE helper_prompt"},
		{client: "opencode", name: "the question itself", said: []string{"| s:You_are_a_title_generator._You_output_ONLY_a_thread_title. u:Generate_a_title_for_this_conversation: u:fix -> a:Fixing"}, asks: "tools=bash | s:agent u:fix", place: "LINE first"},
		{client: "opencode", name: "a step of its loop", said: []string{"tools=bash | s:agent u:1 -> c:x"}, asks: "tools=bash | s:agent u:1 c:x r:x", place: "LINE known_history"},
		{client: "opencode", name: "summary over the history", said: agentSaid(), asks: "| s:You_are_tasked_with_summarizing_conversations. u:1 c:x r:x a:1 u:2 a:2 u:Summarize", place: "LINE known_history"},
		{client: "opencode", name: "after its compaction", said: append(agentSaid(), "| s:You_are_tasked_with_summarizing_conversations. u:1 c:x r:x a:1 u:2 a:2 u:Summarize -> a:"+summary), asks: "tools=ls,edit | s:agent u:" + summary, place: "ALONE quotes_an_answer"},
		{client: "Codex", name: "compaction", said: agentSaid(), asks: "tools=ls,edit side=compaction | s:agent u:1 c:x r:x a:1 u:2 a:2 u:compact", place: "SIDE declared"},
		{client: "Codex", name: "warm-up", said: agentSaid(), asks: "tools=ls,edit side=prewarm | s:agent u:env", place: "SIDE declared"},
		{client: "Codex", name: "the first question after a warm-up", said: []string{"tools=ls,edit side=prewarm | s:agent u:env -> -"}, asks: "tools=ls,edit | s:agent u:env u:1", place: "LINE first"},
		{client: "Codex", name: "review by a sub-agent", said: newSaid(), asks: "tools=ls side=subagent | s:review u:check", place: "SIDE declared"},
		{client: "Codex", name: "all prompts and a summary", said: agentSaid(), asks: "tools=ls,edit | s:agent u:1 u:2 u:summary", place: "LINE known_history"},
		{client: "Claude Code", name: "is this a new topic", said: agentSaid(), asks: "| s:Analyze_if_this_message_indicates_a_new_conversation_topic._If_it_does,_extract_a_2-3_word_title. u:3", place: "SIDE helper_prompt"},
		{client: "Claude Code", name: "title of the coding session", said: agentSaid(), asks: "format=json_schema | s:Generate_a_concise_title_(3-7_words)_that_captures_the_goal_of_this_coding_session. u:3", place: "SIDE helper_prompt"},
		{client: "Claude Code", name: "compacted to a summary", said: agentSaid(), asks: "tools=ls,edit | s:agent u:summary", place: "ALONE history_replaced"},
		{client: "Claude Code", name: "goes on from its summary", said: append(agentSaid(), "tools=ls,edit | s:agent u:summary -> a:3"), asks: "tools=ls,edit | s:agent u:summary a:3 u:4", place: "LINE known_history"},
		{client: "Claude Code", name: "a sub-agent while the call is open", said: []string{"tools=task,ls | s:agent u:1 -> c:x"}, asks: "tools=ls | s:explore u:look", place: "ALONE head_waits"},
		{client: "Claude Code", name: "its loop", said: []string{"tools=task,ls | s:agent u:1 -> c:x", "tools=ls | s:explore u:look -> c:y"}, asks: "tools=ls | s:explore u:look c:y r:y", place: "ALONE known_history"},
		{client: "Claude Code", name: "the parent goes on", said: []string{"tools=task,ls | s:agent u:1 -> c:x", "tools=ls | s:explore u:look -> a:found"}, asks: "tools=task,ls | s:agent u:1 c:x r:x", place: "LINE known_history"},
		{client: "SillyTavern", name: "an exchange is deleted", said: append(chatSaid(), "| u:1 a:1 u:2 a:2 u:3 -> a:3"), asks: "| u:1 a:1 u:3 a:3 u:4", place: "LINE known_history"},
		{client: "Cline", name: "keeps the task and cuts the middle", said: append(agentSaid(), "tools=ls,edit | s:agent u:1 c:x r:x a:1 u:2 a:2 u:3 -> a:3"), asks: "tools=ls,edit | s:agent u:1 u:2 a:2 u:3 a:3 u:4", place: "LINE known_history"},
		{client: "Cline", name: "condensed", said: agentSaid(), asks: "tools=ls,edit | s:agent u:summary u:go_on", place: "ALONE history_replaced"},
		{client: "aider", name: "another map of the repository first", said: []string{"| s:edit u:map1 a:Ok u:1 -> a:1"}, asks: "| s:edit u:map2 a:Ok u:1 a:1 u:2", place: "LINE known_history"},
		{client: "kimi-code", name: "last prompts and a summary", said: agentSaid(), asks: "tools=ls,edit | s:agent u:2 u:summary", place: "ALONE history_replaced"},
		{client: "exec of an agent", name: "compacted in the middle of its only run", said: []string{"tools=ls | s:agent u:1 -> c:x", "tools=ls | s:agent u:1 c:x r:x -> c:y"}, asks: "tools=ls | s:agent u:summary", place: "ALONE head_waits"},
		{client: "Continue", name: "title", said: chatSaid(), asks: "| u:Given_the_conversation,_write_a_title_of_3-4_words._conversation:_" + strings.Repeat("user:_bake_assistant:_bread_", 8), place: "SIDE helper_prompt"},
		{client: "agents", name: "a warm-up that asks nothing", said: agentSaid(), asks: "tools=ls,edit | s:agent", place: "SIDE nothing_asked"},

		{client: "aider", name: "files behind the history", said: []string{"| s:edit u:map a:Ok u:files a:Ok u:1 -> a:1"}, asks: "| s:edit u:map a:Ok u:1 a:1 u:files a:Ok u:2", place: "LINE known_history", only: dialects.Chat},
		{client: "aider", name: "its history as a summary", said: aiderSaid(), asks: "| s:edit u:map a:Ok u:I_spoke_to_you_previously_about_a_number_of_things._" + summary + " a:Ok. u:3", place: "LINE known_history"},
		{client: "aider", name: "the order of that summary", said: aiderSaid(), asks: "model=small | s:*Briefly*_summarize_this_partial_conversation_about_programming. u:#_USER_1_#_ASSISTANT_1_#_USER_2_#_ASSISTANT_2", place: "ALONE history_replaced"},
		{client: "aider", name: "a commit message", said: aiderSaid(), asks: "model=small | s:You_generate_Git_commit_messages. u:diff", place: "ALONE history_replaced"},
		{client: "Cline", name: "a sub-agent while its call and another one are open", said: []string{"tools=spawn,run | s:agent u:1 -> c:x c:y"}, asks: "tools=run | s:count u:files", place: "ALONE head_waits"},
		{client: "Cline", name: "the results of both", said: []string{"tools=spawn,run | s:agent u:1 -> c:x c:y", "tools=run | s:count u:files -> a:3"}, asks: "tools=spawn,run | s:agent u:1 c:x c:y r:x r:y", place: "LINE known_history", only: dialects.Responses},
		{client: "Roo", name: "order of a summary, behind the history", said: agentSaid(), asks: "| s:You_are_tasked_with_summarizing_conversations. u:1 c:x r:x a:1 u:2 a:2 u:Summarize_the_conversation_so_far.", place: "LINE known_history"},
		{client: "Roo", name: "condensed to an answer and the last messages", said: append(agentSaid(), "tools=ls,edit | s:agent u:1 c:x r:x a:1 u:2 a:2 u:3 -> a:3"), asks: "tools=ls,edit | s:agent u:1 a:" + summary + " u:2 a:2 u:3 a:3 u:4", place: "LINE known_history"},
		{client: "gemini-cli", name: "who speaks next, behind the history", said: agentSaid(), asks: "tools=respond choice=respond | s:agent u:1 c:x r:x a:1 u:2 a:2 u:Analyze_*only*_your_preceding_response", place: "LINE known_history"},
		{client: "gemini-cli", name: "the question after it", said: append(agentSaid(), "tools=respond choice=respond | s:agent u:1 c:x r:x a:1 u:2 a:2 u:Analyze_*only*_your_preceding_response -> c:y"), asks: "tools=ls,edit | s:agent u:1 c:x r:x a:1 u:2 a:2 u:3", place: "LINE known_history"},
		{client: "gemini-cli", name: "compressed, with the last messages", said: append(agentSaid(), "tools=ls,edit | s:agent u:1 c:x r:x a:1 u:2 a:2 u:3 -> a:3"), asks: "tools=ls,edit | s:agent u:snapshot a:Got_it. u:3 a:3 u:4", place: "LINE known_history"},
		{client: "Qwen Code", name: "a sub-agent that keeps notes, behind the history", said: agentSaid(), asks: "tools=ls,edit | s:You_are_the_memory_extraction_subagent. u:1 c:x r:x a:1 u:2 a:2 u:Scan_the_recent_conversation", place: "LINE known_history"},
		{client: "Qwen Code", name: "the question after it", said: append(agentSaid(), "tools=ls,edit | s:You_are_the_memory_extraction_subagent. u:1 c:x r:x a:1 u:2 a:2 u:Scan_the_recent_conversation -> a:none"), asks: "tools=ls,edit | s:agent u:1 c:x r:x a:1 u:2 a:2 u:3", place: "LINE known_history"},

		// Chat pages.
		{client: "Open WebUI", name: "title", said: chatSaid(), asks: "| " + webUI("a concise, 3-5 word title summarizing"), place: "SIDE helper_prompt"},
		{client: "Open WebUI", name: "tags", said: chatSaid(), asks: "| " + webUI("1-3 broad tags categorizing the main themes of"), place: "SIDE helper_prompt"},
		{client: "Open WebUI", name: "what the user might ask next", said: newSaid(), asks: "| " + webUI("or suggest 3-5 relevant follow-up questions based on"), place: "SIDE helper_prompt"},
		{client: "Open WebUI", name: "search queries", said: chatSaid(), asks: "| " + webUI("search queries from"), place: "SIDE helper_prompt"},
		{client: "chat page", name: "another answer", said: chatSaid(), asks: "| u:1 a:1 u:2", place: "LINE known_history"},
		{client: "chat page", name: "the last message edited", said: chatSaid(), asks: "| u:1 a:1 u:edited", place: "LINE known_history"},
		{client: "chat page", name: "the first message edited", said: chatSaid(), asks: "| u:edited", place: "ALONE history_replaced"},
		{client: "chat page", name: "the first message edited, for another model and as JSON", said: chatSaid(), asks: "format=json_schema model=other | u:edited", place: "ALONE history_replaced"},
		{client: "chat page", name: "and gone on from", said: append(chatSaid(), "| u:edited -> a:3"), asks: "| u:edited a:3 u:4", place: "LINE known_history"},
		{client: "LibreChat", name: "title", said: chatSaid(), asks: "| s:Provide_a_concise,_5-word-or-less_title_for_the_conversation,_using_its_language. u:1", place: "SIDE helper_prompt"},
		{client: "LobeChat", name: "title", said: chatSaid(), asks: "| s:Summarize_the_conversation_into_a_title_within_5_words. u:user:_1_assistant:_1", place: "SIDE helper_prompt"},
		{client: "Vercel chatbot", name: "title beside the first message", asks: "| s:you_will_generate_a_short_title_based_on_the_first_message_a_user_begins_a_conversation_with u:1", place: "SIDE helper_prompt"},
		{client: "Vercel chatbot", name: "the first message after a title that failed", said: []string{"| s:you_will_generate_a_short_title_based_on_the_first_message_a_user_begins_a_conversation_with u:1 -> -"}, asks: "| s:be u:1", place: "LINE first"},
		{client: "Vercel chatbot", name: "the title again", said: []string{"| s:you_will_generate_a_short_title_based_on_the_first_message_a_user_begins_a_conversation_with u:1 -> -"}, asks: "| s:you_will_generate_a_short_title_based_on_the_first_message_a_user_begins_a_conversation_with u:1", place: "SIDE helper_prompt"},
		{client: "program that makes titles", name: "the second text", said: []string{"| s:You_are_a_title_generator._Answer_with_a_thread_title. u:1 -> a:One"}, asks: "| s:You_are_a_title_generator._Answer_with_a_thread_title. u:2", place: "LINE first"},
		{client: "program that makes titles", name: "the result of a call", said: []string{"tools=f | s:You_name_things. u:1 -> c:x"}, asks: "| s:You_are_a_title_generator._Answer_with_a_thread_title. r:x", place: "BEFORE results", view: "s:You_are_a_title_generator._Answer_with_a_thread_title. u:1 c:x r:x"},
		{client: "NextChat", name: "topic, behind the history", said: chatSaid(), asks: "| u:1 a:1 u:2 a:2 u:Please_generate_a_four_to_five_word_title_summarizing_our_conversation", place: "LINE known_history"},
		{client: "NextChat", name: "its own summary and the last messages", said: append(chatSaid(), "| u:1 a:1 u:2 a:2 u:3 -> a:3"), asks: "| s:recap u:2 a:2 u:3 a:3 u:4", place: "LINE known_history"},
		{client: "any user", name: "wants a title of the conversation", said: newSaid(), asks: "| s:be u:Generate_a_short_title_for_this_conversation", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:2 u:Generate_a_short_title_for_this_conversation"},

		// Programs with an SDK.
		{client: "openai-node", name: "only what is new, second request", said: []string{"| u:1 -> a:1"}, asks: "| u:2", place: "BEFORE taken_as_only_new", view: "u:1 a:1 u:2"},
		{client: "openai-go", name: "a date in its prompt", said: []string{"| s:monday u:1 -> a:1", "| s:tuesday u:2 -> a:2"}, asks: "| s:wednesday u:3", place: "BEFORE only_new", view: "s:wednesday u:1 a:1 u:2 a:2 u:3"},
		{client: "openai-python", name: "a date in its prompt, second request", said: []string{"| s:monday u:1 -> a:1"}, asks: "| s:tuesday u:2", place: "BEFORE taken_as_only_new", view: "s:tuesday u:1 a:1 u:2"},
		{client: "RAG service", name: "retrieved text in its prompt", said: newSaid(), asks: "| s:passages_about_3 u:3", place: "BEFORE only_new", view: "s:passages_about_3 u:1 a:1 u:2 a:2 u:3"},
		{client: "SDK", name: "a prompt added in turn 2", said: []string{"| u:1 -> a:1"}, asks: "| s:be u:2", place: "BEFORE taken_as_only_new", view: "s:be u:1 a:1 u:2"},
		{client: "SDK", name: "JSON wanted at last", said: newSaid(), asks: "format=json_schema | s:be u:3", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:2 u:3"},
		{client: "SDK", name: "no tools at last", said: []string{"tools=f | u:1 -> a:1", "tools=f | u:2 -> a:2"}, asks: "| u:3", place: "BEFORE only_new", view: "u:1 a:1 u:2 a:2 u:3"},
		{client: "SDK", name: "the result of a call", said: []string{"tools=f | u:1 -> c:x"}, asks: "tools=f | r:x", place: "BEFORE results", view: "u:1 c:x r:x"},
		{client: "SDK", name: "the same result again", said: []string{"tools=f | u:1 -> c:x", "tools=f | r:x -> a:1"}, asks: "tools=f | r:x", place: "BEFORE results_repeated", view: "u:1 c:x r:x"},
		{client: "SDK", name: "a call forgotten", said: []string{"tools=f | u:1 -> c:x"}, asks: "tools=f | u:2", place: "BEFORE taken_as_only_new", view: "u:1 u:2"},
		{client: "Instructor", name: "a question after data", said: []string{"tools=User choice=User | s:extract u:1 -> c:x"}, asks: "| u:2", place: "BEFORE taken_as_only_new", view: "s:extract u:1 a:{} u:2"},
		{client: "LangChain", name: "other data", said: []string{"tools=User choice=User | u:1 -> c:x"}, asks: "tools=Order choice=Order | u:2", place: "BEFORE taken_as_only_new", view: "u:1 a:{} u:2"},
		{client: "LangChain", name: "data twice, by calls of one id", said: []string{"tools=User choice=User | u:1 -> c:x", "tools=User choice=User | u:2 -> c:x"}, asks: "tools=User | u:3", place: "BEFORE only_new", view: "u:1 a:{} u:2 a:{} u:3"},
		{client: "LangChain", name: "an agent after data and a word", said: []string{"tools=User choice=User | s:extract u:1 -> c:x", "| s:extract u:2"}, asks: "tools=f | s:be u:3", place: "BEFORE only_new", view: "s:be u:1 a:{} u:2 a:answer u:3"},
		{client: "SDK", name: "a demanded call that was abandoned for another", said: []string{"tools=f choice=f | u:1 -> c:x", "tools=f | r:x -> c:x"}, asks: "tools=f | u:2", place: "BEFORE only_new", view: "u:1 c:x r:x u:2"},
		{client: "AI SDK", name: "a question after an answer tool", said: []string{"tools=ls,answer choice=required | u:1 -> c:x"}, asks: "| u:2", place: "BEFORE taken_as_only_new", view: "u:1 a:{} u:2"},
		{client: "openai-agents", name: "an agent as the tool to be called", said: []string{"tools=ask choice=required | s:parent u:1 -> c:x"}, asks: "| s:be u:2", place: "ALONE head_waits"},
		{client: "openai-agents", name: "an agent as a tool in a later turn", said: delegating(), asks: "tools=ls | s:be u:look", place: "ALONE works_on_a_call"},
		{client: "openai-agents", name: "its next request", said: delegating("tools=ls | s:be u:look -> c:y"), asks: "tools=ls | s:be u:look c:y r:y", place: "ALONE known_history"},
		{client: "openai-agents", name: "the result of its work", said: delegating("tools=ls | s:be u:look -> c:y", "tools=ls | s:be u:look c:y r:y -> a:done"), asks: "tools=ask | s:parent r:x", place: "BEFORE results", view: "s:parent u:1 a:1 u:2 c:x r:x"},
		{client: "openai-agents", name: "the question after its work", said: delegating("tools=ls | s:be u:look -> a:done", "tools=ask | s:parent r:x -> a:2"), asks: "tools=ask | s:parent u:3", place: "BEFORE only_new", view: "s:parent u:1 a:1 u:2 c:x r:x a:2 u:3"},
		{client: "openai-agents", name: "its work in the next turn", said: delegating("tools=ls | s:be u:look -> a:done", "tools=ask | s:parent r:x -> a:2", "tools=ask | s:parent u:3 -> c:x=again"), asks: "tools=ls | s:be u:again", place: "ALONE works_on_a_call"},
		{client: "LangChain", name: "an agent as a tool without tools, with words around the task", said: []string{"tools=ask | s:parent u:1 -> a:1", "tools=ask | s:parent u:2 -> c:x=the_population_of_France_today"}, asks: "| s:be u:Your_task:_the_population_of_France_today.", place: "ALONE works_on_a_call"},
		{client: "AI SDK", name: "an agent as a tool, both without instructions", said: []string{"tools=ask | u:1 -> a:1", "tools=ask | u:2 -> c:x=look"}, asks: "| u:look", place: "ALONE works_on_a_call"},
		{client: "SDK", name: "the user speaks instead of a result, and the system prompt was sent once", said: []string{"tools=f | s:be u:1 -> c:x"}, asks: "tools=f | u:2", place: "BEFORE taken_as_only_new", view: "s:be u:1 u:2"},
		{client: "SDK", name: "a question of another kind while a call is never answered", said: []string{"tools=f | u:1 -> c:x"}, asks: "| u:2", place: "ALONE head_waits"},
		{client: "SDK", name: "and after one of the same kind", said: []string{"tools=f | u:1 -> c:x", "tools=f | u:2 -> a:2"}, asks: "| u:3", place: "BEFORE only_new", view: "u:1 u:2 a:2 u:3"},
		{client: "AI SDK", name: "an agent as the tool to be called, in a later turn", said: []string{"tools=ask | s:parent u:1 -> a:1", "tools=ask choice=ask | s:parent u:2 -> c:x=look"}, asks: "tools=ls | s:be u:look", place: "ALONE works_on_a_call"},
		{client: "SDK", name: "the words of a call that was forgotten", said: []string{"tools=f | s:monday u:1 -> a:1", "tools=f | s:monday u:2 -> c:x=look"}, asks: "tools=f | s:tuesday u:look", place: "BEFORE only_new", view: "s:tuesday u:1 a:1 u:2 u:look"},
		{client: "openai-agents", name: "an agent as a tool, asked in other words", said: delegating(), asks: "tools=g | s:be u:looking", place: "ALONE head_waits"},
		{client: "openai-agents", name: "without tools", said: delegating(), asks: "| s:be u:looking", place: "ALONE head_waits"},
		{client: "openai-agents", name: "its next request after other words", said: delegating("tools=g | s:be u:looking -> c:y"), asks: "tools=g | s:be u:looking c:y r:y", place: "ALONE known_history"},
		{client: "openai-agents", name: "its second question after other words", said: delegating("tools=g | s:be u:looking -> a:done"), asks: "tools=g | s:be u:again", place: "ALONE head_waits"},
		{client: "openai-agents", name: "the result after other words", said: delegating("tools=g | s:be u:looking -> a:done"), asks: "tools=ask | s:parent r:x", place: "BEFORE results", view: "s:parent u:1 a:1 u:2 c:x r:x"},
		{client: "openai-agents", name: "the question after other words", said: delegating("tools=g | s:be u:looking -> a:done", "tools=ask | s:parent r:x -> a:2"), asks: "tools=ask | s:parent u:3", place: "BEFORE only_new", view: "s:parent u:1 a:1 u:2 c:x r:x a:2 u:3"},
		{client: "openai-agents", name: "hand-off after the result of its call", said: delegating("tools=ask | s:parent r:x -> a:2"), asks: "tools=refund | s:refunds u:3", place: "BEFORE only_new", view: "s:refunds u:1 a:1 u:2 c:x r:x a:2 u:3"},
		{client: "openai-agents", name: "hand-off with the result of its call", said: delegating(), asks: "tools=refund | s:refunds r:x", place: "BEFORE results", view: "s:refunds u:1 a:1 u:2 c:x r:x"},
		{client: "openai-agents", name: "hand-off long after a call that was forgotten", said: delegating("tools=ask | s:parent u:3 -> a:3"), asks: "tools=refund | s:refunds u:4", place: "BEFORE only_new", view: "s:refunds u:1 a:1 u:2 u:3 a:3 u:4"},
		{client: "openai-agents", name: "back to an earlier agent after a call that was forgotten", said: append(newSaid(), "tools=f | s:refunds u:3 -> c:x"), asks: "| s:be u:4", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:2 u:3 u:4"},
		{client: "SDK", name: "a date in its prompt after a call that was forgotten", said: delegating(), asks: "tools=ask | s:tuesday u:3", place: "BEFORE only_new", view: "s:tuesday u:1 a:1 u:2 u:3"},
		{client: "SDK", name: "no tools after a call that was forgotten", said: delegating(), asks: "| s:parent u:3", place: "BEFORE only_new", view: "s:parent u:1 a:1 u:2 u:3"},
		{client: "AI SDK", name: "another agent after an answer tool", said: []string{"tools=answer | s:data u:1 -> a:1", "tools=answer choice=required | s:data u:2 -> c:x"}, asks: "tools=f | s:be u:3", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:{} u:3"},
		{client: "SDK", name: "a question asked again after its answer broke off", said: append(newSaid(), "cut=upstream | s:be u:How_do_I_bake_bread? -> a:With"), asks: "| s:be u:How_do_I_bake_bread?", place: "BEFORE retried", view: "s:be u:1 a:1 u:2 a:2 u:How_do_I_bake_bread?"},
		{client: "SDK", name: "after its answer was aborted", said: append(newSaid(), "cut=client | s:be u:How_do_I_bake_bread? -> a:With"), asks: "tools=f model=x | s:other u:How_do_I_bake_bread?", place: "BEFORE retried", view: "s:other u:1 a:1 u:2 a:2 u:How_do_I_bake_bread?"},
		{client: "SDK", name: "the question after it", said: append(newSaid(), "cut=client | s:be u:How_do_I_bake_bread? -> a:With", "| s:be u:How_do_I_bake_bread? -> a:With_flour"), asks: "| s:be u:4", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:2 u:How_do_I_bake_bread? a:With_flour u:4"},
		{client: "SDK", name: "asked a third time", said: append(newSaid(), "cut=client | s:be u:How_do_I_bake_bread? -> a:With", "cut=upstream | s:be u:How_do_I_bake_bread? -> a:With_fl"), asks: "| s:be u:How_do_I_bake_bread?", place: "BEFORE retried", view: "s:be u:1 a:1 u:2 a:2 u:How_do_I_bake_bread?"},
		{client: "SDK", name: "asked again in the second turn", said: []string{"| u:1 -> a:1", "cut=upstream | u:How_do_I_bake_bread? -> a:With"}, asks: "| u:How_do_I_bake_bread?", place: "BEFORE retried", view: "u:1 a:1 u:How_do_I_bake_bread?"},
		{client: "SDK", name: "X-History: server, asked again", said: append(newSaid(), "history=server cut=upstream | s:be u:How_do_I_bake_bread? -> a:With"), asks: "history=server | s:be u:How_do_I_bake_bread?", place: "BEFORE retried", view: "s:be u:1 a:1 u:2 a:2 u:How_do_I_bake_bread?"},
		{client: "SDK", name: "asked again after its answer broke off in a thought", said: append(newSaid(), "cut=client | s:be u:How_do_I_bake_bread? -> new:reasoning"), asks: "| s:be u:How_do_I_bake_bread?", place: "BEFORE retried", view: "s:be u:1 a:1 u:2 a:2 u:How_do_I_bake_bread?", only: dialects.Responses},
		{client: "SDK", name: "asked again after a whole answer", said: append(newSaid(), "| s:be u:How_do_I_bake_bread? -> a:With"), asks: "| s:be u:How_do_I_bake_bread?", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:2 u:How_do_I_bake_bread? a:With u:How_do_I_bake_bread?"},
		{client: "any user", name: "says go on twice after answers that broke off", said: append(newSaid(), "cut=client | s:be u:go_on! -> a:3"), asks: "| s:be u:go_on!", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:2 u:go_on! a:3 u:go_on!"},
		{client: "any user", name: "asks something else after an answer that broke off", said: append(newSaid(), "cut=client | s:be u:How_do_I_bake_bread? -> a:With"), asks: "| s:be u:How_do_I_bake_rolls?", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:2 u:How_do_I_bake_bread? a:With u:How_do_I_bake_rolls?"},
		{client: "SDK", name: "the result of a demanded call", said: []string{"tools=f choice=f | u:1 -> c:x"}, asks: "tools=f | r:x", place: "BEFORE results", view: "u:1 c:x r:x"},
		{client: "SDK", name: "the user quotes the last answer", said: []string{"| u:1 -> a:1", "| u:2 -> a:" + summary}, asks: "| u:You_said:_" + summary + "_Why?", place: "BEFORE only_new", view: "u:1 a:1 u:2 a:" + summary + " u:You_said:_" + summary + "_Why?"},
		{client: "SDK", name: "retry of the first request", said: []string{"| u:1 -> a:1"}, asks: "| u:1", place: "LINE known_history"},
		{client: "SDK", name: "X-History: client", said: newSaid(), asks: "history=client | s:be u:3", place: "LINE declared"},
		{client: "SDK", name: "X-History: server, history resent", said: newSaid(), asks: "history=server | s:be u:1 a:1 u:2 a:2 u:3", place: "BEFORE declared", view: "s:be u:1 a:1 u:2 a:2 u:3"},
		{client: "SDK", name: "X-History: server, end of the history resent", said: newSaid(), asks: "history=server | s:be u:2 a:2 u:3", place: "BEFORE declared", view: "s:be u:1 a:1 u:2 a:2 u:3"},
		{client: "SDK", name: "X-History: server, an edited history", said: newSaid(), asks: "history=server | s:be u:1 a:1 u:other", place: "BEFORE declared", view: "s:be u:1 a:1 u:2 a:2 u:other"},
		{client: "SDK", name: "X-History: server, an edited history goes on", said: append(newSaid(), "history=server | s:be u:1 a:1 u:other -> a:3"), asks: "history=server | s:be u:1 a:1 u:other a:3 u:4", place: "BEFORE declared", view: "s:be u:1 a:1 u:2 a:2 u:other a:3 u:4"},
		{client: "SDK", name: "X-History: server, a repeated request goes on", said: append(newSaid(), "history=server | s:be u:1 a:1 u:2 -> a:3"), asks: "history=server | s:be u:1 a:1 u:2 a:3 u:4", place: "BEFORE declared", view: "s:be u:1 a:1 u:2 a:2 u:2 a:3 u:4"},
		{client: "SDK", name: "examples before the question", said: []string{"| s:be u:ex a:ex u:1 -> a:1"}, asks: "| s:be u:ex a:ex u:2", place: "LINE known_history"},
		{client: "SDK", name: "the beginning of the answer", said: newSaid(), asks: "| s:be u:3 a:it_is", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:2 u:3 a:it_is"},
		{client: "SDK", name: "the beginning of the answer, second request", said: []string{"| u:1 -> a:1"}, asks: "| u:2 a:it_is", place: "BEFORE taken_as_only_new", view: "u:1 a:1 u:2 a:it_is"},
		{client: "SDK", name: "a history from elsewhere", said: newSaid(), asks: "| s:be u:x a:y u:z", place: "ALONE foreign_answer"},
		{client: "go-openai", name: "a history with a call", said: []string{"tools=f | s:be u:1 -> c:x", "tools=f | s:be u:1 c:x r:x -> a:1"}, asks: "tools=f | s:be u:1 c:x r:x a:1 u:2", place: "LINE known_history"},
		{client: "langchaingo", name: "a history of texts", said: []string{"| u:1 -> a:1"}, asks: "| u:1 a:1 u:2", place: "LINE known_history"},
		{client: "@openrouter/sdk", name: "a step of callModel", said: []string{"tools=f | u:1 -> c:x"}, asks: "tools=f | u:1 c:x r:x", place: "LINE known_history"},
		{client: "promptfoo", name: "the second test of a suite", said: []string{"| u:1 -> a:1"}, asks: "| u:2", place: "BEFORE taken_as_only_new", view: "u:1 a:1 u:2"},
		{client: "promptfoo", name: "a test that has the ones before it", said: []string{"| u:1 -> a:1"}, asks: "| u:1 a:1 u:2", place: "LINE known_history"},
		{client: "AI SDK", name: "a step without the question, that prepareStep has cut", said: []string{"tools=f | s:be u:1 -> c:x", "tools=f | s:be u:1 c:x r:x -> c:y"}, asks: "tools=f | s:other c:x r:x c:y r:y", place: "LINE known_history"},
		{client: "AI SDK", name: "generateObject beside an agent", said: agentSaid(), asks: "format=json_schema | u:{}", place: "SIDE helper_signs"},
		{client: "Responses", name: "previous_response_id", said: newSaid(), asks: "previous=resp_2 | u:3", place: "LINE upstream", only: dialects.Responses},
		{client: "Responses", name: "an approval", said: []string{"| s:be u:1 -> may:mcpr_1"}, asks: "| ok:mcpr_1", place: "BEFORE results", view: "s:be u:1 may:mcpr_1 ok:mcpr_1", only: dialects.Responses},
		{client: "Responses", name: "an item of a type to come", said: newSaid(), asks: "| s:be new:screen u:3", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:2 new:screen u:3", only: dialects.Responses},
		{client: "Responses", name: "a result of a type to come", said: newSaid(), asks: "| new:scan_call_output", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:2 new:scan_call_output", only: dialects.Responses},
		{client: "Responses", name: "a call of a type to come, resent", said: newSaid(), asks: "| s:be u:3 new:scan_call new:scan_call_output", place: "ALONE foreign_answer", only: dialects.Responses},
		{client: "AI SDK", name: "answers by reference", said: []string{"| u:1 -> a:1"}, asks: "| u:1 ref:msg_1 u:2", place: "LINE known_history", only: dialects.Responses},

		// Agent frameworks.
		{client: "openai-agents", name: "next run without a session", said: []string{"tools=f | s:be u:1 -> a:1"}, asks: "tools=f | s:be u:2", place: "BEFORE taken_as_only_new", view: "s:be u:1 a:1 u:2"},
		{client: "openai-agents", name: "a step of that run", said: []string{"tools=f | s:be u:1 -> a:1", "tools=f | s:be u:2 -> c:x"}, asks: "tools=f | s:be u:2 c:x r:x", place: "BEFORE run", view: "s:be u:1 a:1 u:2 c:x r:x"},
		{client: "AI SDK", name: "a step of that run with a repaired call", said: []string{"tools=f | s:be u:1 -> a:1", "tools=f | s:be u:2 -> c:x=wrong"}, asks: "tools=f | s:be u:2 c:x=right r:x", place: "BEFORE run", view: "s:be u:1 a:1 u:2 c:x r:x"},
		{client: "AI SDK", name: "a step after that", said: []string{"tools=f | s:be u:1 -> a:1", "tools=f | s:be u:2 -> c:x=wrong", "tools=f | s:be u:2 c:x=right r:x -> c:y"}, asks: "tools=f | s:be u:2 c:x=right r:x c:y r:y", place: "BEFORE run", view: "s:be u:1 a:1 u:2 c:x r:x c:y r:y"},
		{client: "AI SDK", name: "the question after a repaired call", said: []string{"tools=f | s:be u:1 -> a:1", "tools=f | s:be u:2 -> c:x=wrong", "tools=f | s:be u:2 c:x=right r:x -> a:2"}, asks: "tools=f | s:be u:3", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 c:x r:x a:2 u:3"},
		{client: "SDK", name: "a call from elsewhere behind a question that was asked before", said: []string{"tools=f | s:be u:1 -> a:1", "tools=f | s:be u:2 -> c:x"}, asks: "tools=f | s:be u:2 c:y r:y", place: "ALONE foreign_answer"},
		{client: "openai-agents", name: "the run after it", said: []string{"tools=f | s:be u:1 -> a:1", "tools=f | s:be u:2 -> c:x", "tools=f | s:be u:2 c:x r:x -> a:2"}, asks: "tools=f | s:be u:3", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 c:x r:x a:2 u:3"},
		{client: "openai-agents", name: "hand-off, only what is new", said: newSaid(), asks: "tools=refund model=small | s:refunds u:3", place: "BEFORE only_new", view: "s:refunds u:1 a:1 u:2 a:2 u:3"},
		{client: "openai-agents", name: "hand-off without the calls", said: handingOff(), asks: "tools=refund | s:refunds u:2", place: "BEFORE run", view: "s:refunds u:1 a:1 u:2"},
		{client: "openai-agents", name: "hand-off without the calls, with what was said beside them", said: []string{"tools=hand | s:triage u:1 -> a:1", "tools=hand | s:triage u:2 -> a:wait c:x"}, asks: "tools=refund | s:refunds u:2 a:wait", place: "BEFORE run", view: "s:refunds u:1 a:1 u:2 a:wait"},
		{client: "openai-agents", name: "a step after that hand-off", said: handingOff("tools=refund | s:refunds u:2 -> c:y"), asks: "tools=refund | s:refunds u:2 c:y r:y", place: "BEFORE run", view: "s:refunds u:1 a:1 u:2 c:y r:y"},
		{client: "openai-agents", name: "the question after that hand-off", said: handingOff("tools=refund | s:refunds u:2 -> a:2"), asks: "tools=hand | s:triage u:3", place: "BEFORE only_new", view: "s:triage u:1 a:1 u:2 a:2 u:3"},
		{client: "openai-agents", name: "the same hand-off later", said: handingOff("tools=refund | s:refunds u:2 -> a:2", "tools=hand | s:triage u:3 -> c:z"), asks: "tools=refund | s:refunds u:3", place: "BEFORE run", view: "s:refunds u:1 a:1 u:2 a:2 u:3"},
		{client: "openai-agents", name: "hand-off without the calls in the first turn", said: []string{"tools=hand | s:triage u:1 -> c:x"}, asks: "tools=refund | s:refunds u:1", place: "LINE known_history"},
		{client: "openai-agents", name: "an agent as a tool, asked the user's question", said: []string{"tools=ask | s:parent u:1 -> a:1", "tools=ask | s:parent u:look -> c:x=look"}, asks: "tools=ls | s:be u:look", place: "ALONE works_on_a_call"},
		{client: "openai-agents", name: "hand-off, history resent", said: agentSaid(), asks: "tools=refund model=small | s:refunds u:1 c:x r:x a:1 u:2 a:2 u:3", place: "LINE known_history"},
		{client: "LangChain", name: "messages trimmed", said: append(chatSaid(), "| u:1 a:1 u:2 a:2 u:3 -> a:3"), asks: "| u:3 a:3 u:4", place: "LINE known_history"},
		{client: "n8n", name: "a history of texts, after a turn with calls", said: textsSaid(), asks: "tools=f | s:be u:1 a:1 u:2", place: "LINE known_history"},
		{client: "n8n", name: "a step of that turn", said: append(textsSaid(), "tools=f | s:be u:1 a:1 u:2 -> c:y"), asks: "tools=f | s:be u:1 a:1 u:2 c:y r:y", place: "LINE known_history"},
		{client: "n8n", name: "the last exchange of texts alone", said: append(textsSaid(), "tools=f | s:be u:1 a:1 u:2 -> c:y", "tools=f | s:be u:1 a:1 u:2 c:y r:y -> a:2"), asks: "tools=f | s:be u:2 a:2 u:3", place: "ALONE foreign_answer"},
		{client: "eino", name: "a step of its ReAct agent in a later run", said: []string{"tools=f | s:be u:1 -> a:1", "tools=f | s:be u:2 -> c:x"}, asks: "tools=f | s:be u:2 c:x r:x", place: "BEFORE run", view: "s:be u:1 a:1 u:2 c:x r:x"},
		{client: "Mastra", name: "an old exchange recalled, and the last ones", said: append(chatSaid(), "| u:1 a:1 u:2 a:2 u:3 -> a:3", "| u:1 a:1 u:2 a:2 u:3 a:3 u:4 -> a:4"), asks: "| u:1 a:1 u:3 a:3 u:4 a:4 u:5", place: "LINE known_history"},
		{client: "Mastra", name: "an exchange of another session recalled, and the last ones", said: append(chatSaid(), "| u:1 a:1 u:2 a:2 u:3 -> a:3"), asks: "| u:x a:x u:2 a:2 u:3 a:3 u:4", place: "LINE known_history"},
		{client: "CopilotKit", name: "what its page shows, in each request", said: []string{"tools=f | s:be s:page1 u:1 -> c:x", "tools=f | s:be s:page1 u:1 c:x r:x -> a:1"}, asks: "tools=f | s:be s:page2 u:1 c:x r:x a:1 u:2", place: "LINE known_history"},
		{client: "Pydantic AI", name: "its output tool, history resent", said: []string{"tools=f,final choice=required | s:be u:1 -> c:x"}, asks: "tools=f,final choice=required | s:be u:1 c:x r:x u:2", place: "LINE known_history"},
		{client: "smolagents", name: "a step in a later task", said: append(newSaid(), "| s:code u:task -> a:look"), asks: "| s:code u:task a:look u:" + observed, place: "BEFORE run", view: "s:code u:1 a:1 u:2 a:2 u:task a:look u:" + observed},
		{client: "LangGraph", name: "a worker is told what another found, as the router was before", said: supervisedSaid(), asks: "tools=edit | s:code u:1 u:" + summary, place: "ALONE quotes_an_answer"},
		{client: "LangGraph", name: "the worker's loop", said: append(supervisedSaid(), "tools=edit | s:code u:1 u:"+summary+" -> c:y"), asks: "tools=edit | s:code u:1 u:" + summary + " c:y r:y", place: "LINE known_history"},
		{client: "LangGraph", name: "a history that began in mid-session", said: []string{"| s:be u:1 -> a:1", "| s:be u:2 -> a:2", "| s:be u:3 -> a:3"}, asks: "| s:be u:2 a:2 u:4", place: "LINE known_history"},
		{client: "CrewAI", name: "a step with the observation in the model's message", said: append(newSaid(), "| s:crew u:task -> a:Action:_look"), asks: "| s:crew u:task a:Action:_look¶Observation:_found", place: "BEFORE run", view: "s:crew u:1 a:1 u:2 a:2 u:task a:Action:_look¶Observation:_found"},
		{client: "CrewAI", name: "the step after it", said: crewSaid(), asks: "| s:crew u:task a:Action:_look¶Observation:_found a:Action:_open¶Observation:_opened", place: "BEFORE run", view: "s:crew u:1 a:1 u:2 a:2 u:task a:Action:_look¶Observation:_found a:Action:_open¶Observation:_opened"},
		{client: "CrewAI", name: "the task after it", said: append(crewSaid(), "| s:crew u:task a:Action:_look¶Observation:_found a:Action:_open¶Observation:_opened -> a:done"), asks: "| s:writer u:write", place: "BEFORE only_new", view: "s:writer u:1 a:1 u:2 a:2 u:task a:Action:_look¶Observation:_found a:Action:_open¶Observation:_opened a:done u:write"},
		{client: "CrewAI", name: "what came of an answer, without the answer", said: append(newSaid(), "| s:crew u:task -> a:looking"), asks: "| s:crew u:task u:" + observed, place: "BEFORE run", view: "s:crew u:1 a:1 u:2 a:2 u:task u:" + observed},
		{client: "SDK", name: "has a cut answer go on", said: append(newSaid(), "| s:be u:3 -> a:it_is"), asks: "| s:be u:3 a:it_is", place: "BEFORE run", view: "s:be u:1 a:1 u:2 a:2 u:3 a:it_is"},
		{client: "SDK", name: "the same words and the same beginning of the answer twice", said: append(newSaid(), "| s:be u:on a:it -> a:_goes"), asks: "| s:be u:on a:it", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:2 u:on a:it a:_goes u:on a:it", only: dialects.Chat},
		{client: "AutoGen", name: "a step in a later chat", said: append(newSaid(), "| s:coder u:task -> a:print"), asks: "| s:coder u:task a:print u:exitcode:_0_(execution_succeeded)", place: "BEFORE run", view: "s:coder u:1 a:1 u:2 a:2 u:task a:print u:exitcode:_0_(execution_succeeded)"},
		{client: "AutoGen", name: "the chat after the first one", said: []string{"| s:coder u:task -> a:print", "| s:coder u:task a:print u:exitcode:_0_(execution_succeeded) -> a:done"}, asks: "| s:coder u:next", place: "BEFORE taken_as_only_new", view: "s:coder u:task a:print u:exitcode:_0_(execution_succeeded) a:done u:next"},
		{client: "AutoGen", name: "a group chat, whose agents get each other's answers as the user's", said: []string{"| s:one u:1 -> a:draft", "| s:two u:1 u:draft -> a:better"}, asks: "| s:one u:1 a:draft u:better", place: "LINE known_history"},
		{client: "CrewAI", name: "jobs under one id", said: newSaid(), asks: "tools=search | s:writer u:job", place: "BEFORE only_new", view: "s:writer u:1 a:1 u:2 a:2 u:job"},
		{client: "openai-agents", name: "a guard beside an agent", said: []string{"tools=f | s:be u:1 -> c:x", "format=json_schema | s:judge u:ok -> a:yes", "tools=f | r:x -> a:1"}, asks: "format=json_schema | s:judge u:ok2", place: "SIDE helper_signs"},
		{client: "openai-agents", name: "a guard of the first answer", said: []string{"tools=f | s:be u:1 -> a:It_is"}, asks: "format=json_schema | s:judge u:It_is", place: "SIDE helper_signs"},
		{client: "openai-agents", name: "a guard of a later answer", said: []string{"tools=f | s:be u:1 -> a:1", "tools=f | s:be u:2 -> a:It_is"}, asks: "format=json_schema | s:judge u:It_is", place: "SIDE helper_signs"},
		{client: "openai-agents", name: "the question after a guard of answers", said: []string{"tools=f | s:be u:1 -> a:It_is", "format=json_schema | s:judge u:It_is -> a:yes"}, asks: "tools=f | s:be u:2", place: "BEFORE taken_as_only_new", view: "s:be u:1 a:It_is u:2"},
		{client: "openai-agents", name: "a guard of answers of an agent without tools", said: newSaid(), asks: "format=json_schema | s:judge u:2", place: "SIDE helper_signs"},
		{client: "openai-agents", name: "a guard of answers of a client that resends", said: agentSaid(), asks: "format=json_schema | s:judge u:2", place: "SIDE helper_signs"},
		{client: "guardrail", name: "a guard of a long answer, with words around it", said: []string{"tools=f | s:be u:1 -> a:" + summary}, asks: "format=json_object | s:judge u:Is_this_allowed?_" + summary, place: "SIDE helper_signs"},
		{client: "pipeline", name: "an agent that writes from data", said: []string{"tools=f format=json_schema | s:plan u:1 -> a:It_is"}, asks: "| s:write u:It_is", place: "BEFORE taken_as_only_new", view: "s:write u:1 a:It_is u:It_is"},
		{client: "any user", name: "repeats an answer, with JSON wanted at last", said: newSaid(), asks: "format=json_schema | s:be u:2", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:2 u:2"},
		{client: "openai-agents", name: "back to an agent without tools", said: []string{"| s:triage u:1 -> a:1", "tools=f | s:refunds u:2 -> a:2"}, asks: "| s:triage u:3", place: "BEFORE taken_as_only_new", view: "s:triage u:2 a:2 u:3"},
		{client: "guardrail", name: "a judge beside an agent", said: agentSaid(), asks: "model=small | s:judge u:is_this_allowed", place: "SIDE helper_signs"},
		{client: "router", name: "a classifier with the same tools", said: agentSaid(), asks: "tools=ls,edit model=small format=json_schema | s:agent u:which_way", place: "SIDE helper_signs"},
		{client: "router", name: "a classifier before each turn", said: []string{"| s:intent u:1 -> a:x", "tools=f | s:agent u:1 -> a:1", "| s:intent u:2 -> a:y", "tools=f | s:agent u:1 a:1 u:2 -> a:2"}, asks: "| s:intent u:3", place: "SIDE helper_signs"},
		{client: "router", name: "the turn after it", said: []string{"| s:intent u:1 -> a:x", "tools=f | s:agent u:1 -> a:1", "| s:intent u:2 -> a:y", "tools=f | s:agent u:1 a:1 u:2 -> a:2", "| s:intent u:3 -> a:z"}, asks: "tools=f | s:agent u:1 a:1 u:2 a:2 u:3", place: "LINE known_history"},
		{client: "Instructor", name: "data before each turn of a chat", said: []string{"tools=Intent choice=Intent | s:intent u:1 -> c:x", "| s:be u:1 -> a:1", "tools=Intent choice=Intent | s:intent u:2 -> c:y", "| s:be u:1 a:1 u:2 -> a:2"}, asks: "tools=Intent choice=Intent | s:intent u:3", place: "ALONE history_replaced"},
		{client: "SDK", name: "no tools beside a client that resends are one sign", said: append(newSaid(), "tools=f | s:be u:1 a:1 u:2 a:2 u:3 -> a:3"), asks: "| s:be u:4", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:2 u:3 a:3 u:4"},
		{client: "LangChain", name: "its middleware orders a summary", said: append(agentSaid(), "tools=ls,edit | s:agent u:1 c:x r:x a:1 u:2 a:2 u:3 -> a:"+summary), asks: "| u:Extract_the_context:_1_2_" + summary, place: "SIDE helper_signs"},
		{client: "LangChain", name: "its middleware orders a summary before the results are sent", said: append(agentSaid(), "tools=ls,edit | s:agent u:1 c:x r:x a:1 u:2 a:2 u:3 -> c:y"), asks: "| u:Extract_the_context:_1_2_3", place: "SIDE helper_signs"},
		{client: "LangChain", name: "its middleware orders a summary of a chat", said: []string{"| s:be u:1 -> a:1", "| s:be u:1 a:1 u:2 -> a:" + summary}, asks: "| u:Extract_the_context:_1_2_" + summary, place: "SIDE helper_signs"},
		{client: "LangChain", name: "a chat with that summary", said: []string{"| s:be u:1 -> a:1", "| s:be u:1 a:1 u:2 -> a:" + summary, "| u:Extract_the_context:_1_2_" + summary + " -> a:recap"}, asks: "| s:be u:recap u:2 a:" + summary + " u:3", place: "LINE known_history"},
		{client: "openai-agents", name: "an agent without tools, as a tool of one that resends", said: append(agentSaid(), "tools=ls,edit | s:agent u:1 c:x r:x a:1 u:2 a:2 u:3 -> c:y"), asks: "| s:translate u:good_morning", place: "SIDE helper_signs"},
		{client: "LangChain", name: "an agent that writes its steps into the question", said: []string{"| u:" + react + "1_Thought: -> a:look"}, asks: "| u:" + react + "1_Thought:_look_Observation:_found_Thought:", place: "BEFORE extended"},
		{client: "LangChain", name: "its next question", said: []string{"| u:" + react + "1_Thought: -> a:look", "| u:" + react + "1_Thought:_look_Observation:_found_Thought: -> a:done"}, asks: "| u:" + react + "2_Thought:", place: "BEFORE only_new", view: "u:" + react + "1_Thought:_look_Observation:_found_Thought: a:done u:" + react + "2_Thought:"},
		{client: "LangChain", name: "a step of the next question, with words behind the steps", said: []string{"| u:1 -> a:1", "| u:" + react + "2_(reminder) -> a:look"}, asks: "| u:" + react + "2_look_Observation:_found_(reminder)", place: "BEFORE extended", view: "u:1 a:1 u:" + react + "2_look_Observation:_found_(reminder)"},
		{client: "any user", name: "asks a long question again, with other words behind it", said: []string{"| u:1 -> a:1", "| u:" + react + "2 -> a:look"}, asks: "| u:" + react + "2_please", place: "BEFORE only_new", view: "u:1 a:1 u:" + react + "2 a:look u:" + react + "2_please"},
		{client: "LangChain", name: "a question made standalone, by a program that sends only what is new", said: newSaid(), asks: "| u:Given_the_following_conversation_and_a_follow_up_question,_rephrase_the_follow_up_question_to_be_a_standalone_question._Chat_History:_Human:_1_Assistant:_1_Follow_Up_Input:_2_Standalone_question:", place: "SIDE helper_prompt"},
		{client: "LlamaIndex", name: "the question after the steps of a ReAct agent", said: []string{"| s:react u:1 -> a:look", "| s:react u:1 a:look u:" + observed + " -> a:1"}, asks: "| s:react u:2", place: "BEFORE taken_as_only_new", view: "s:react u:1 a:look u:" + observed + " a:1 u:2"},
		{client: "LlamaIndex", name: "a step of a ReAct agent in a later turn", said: append(newSaid(), "| s:be u:3 -> a:look"), asks: "| s:be u:3 a:look u:" + observed, place: "BEFORE run", view: "s:be u:1 a:1 u:2 a:2 u:3 a:look u:" + observed},
		{client: "LlamaIndex", name: "its second step", said: append(newSaid(), "| s:be u:3 -> a:look", "| s:be u:3 a:look u:"+observed+" -> a:open"), asks: "| s:be u:3 a:look u:" + observed + " a:open u:" + observed + "_too", place: "BEFORE run", view: "s:be u:1 a:1 u:2 a:2 u:3 a:look u:" + observed + " a:open u:" + observed + "_too"},
		{client: "Instructor", name: "a step with the answer in other words", said: append(newSaid(), "| s:be u:3 -> a:look"), asks: "| s:be u:3 a:look_there u:" + observed, place: "BEFORE run", view: "s:be u:1 a:1 u:2 a:2 u:3 a:look_there u:" + observed},
		{client: "Instructor", name: "the question after that", said: append(newSaid(), "| s:be u:3 -> a:look", "| s:be u:3 a:look_there u:"+observed+" -> a:3"), asks: "| s:be u:4", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:2 u:3 a:look_there u:" + observed + " a:3 u:4"},
		{client: "LlamaIndex", name: "a ReAct agent with a memory of its own", said: []string{"| s:react u:1 -> a:look", "| s:react u:1 a:look u:" + observed + " -> a:1"}, asks: "| s:react u:1 a:1 u:2", place: "LINE known_history"},
		{client: "LlamaIndex", name: "and begun again", said: []string{"| s:react u:1 -> a:1", "| s:react u:1 a:1 u:2 -> a:look", "| s:react u:1 a:1 u:2 a:look u:" + observed + " -> a:2"}, asks: "| s:react u:3", place: "ALONE history_replaced"},
		{client: "LlamaIndex", name: "a question made standalone", said: chatSaid(), asks: "| u:Given_a_conversation_(between_Human_and_Assistant)_and_a_follow_up_message_from_Human,_rewrite_the_message_to_be_a_standalone_question._<Chat_History>_user:_1_assistant:_1_<Follow_Up_Message>_2_<Standalone_question>", place: "SIDE helper_prompt"},
		{client: "any user", name: "wants a question of a chat rephrased", said: newSaid(), asks: "| s:be u:Rephrase_the_question_of_this_chat_for_a_child:_why_do_bees_fly?_user:_1_assistant:_1_and_some_more_words_so_that_this_message_is_as_long_as_one_with_a_whole_conversation_would_be", place: "BEFORE only_new", view: "s:be u:1 a:1 u:2 a:2 u:Rephrase_the_question_of_this_chat_for_a_child:_why_do_bees_fly?_user:_1_assistant:_1_and_some_more_words_so_that_this_message_is_as_long_as_one_with_a_whole_conversation_would_be"},
		{client: "framework", name: "another prompt alone is no sign", said: agentSaid(), asks: "tools=ls,edit | s:other u:new", place: "ALONE history_replaced"},
		{client: "framework", name: "an unknown helper came first", said: []string{"| s:odd u:what_is_it -> a:it"}, asks: "tools=f | s:be u:1", place: "LINE after_a_helper"},
		{client: "framework", name: "a classifier came first", said: []string{"format=json_schema | s:intent u:Message:_where_is_my_parcel? -> a:parcel"}, asks: "| s:be u:where_is_my_parcel?", place: "LINE after_a_helper"},
		{client: "framework", name: "a question for the language came first", said: []string{"| u:Which_language?_where_is_my_parcel? -> a:en"}, asks: "| u:where_is_my_parcel?", place: "LINE after_a_helper"},
		{client: "framework", name: "a word of the first message", said: []string{"| u:Message:_where_is_my_parcel? -> a:parcel"}, asks: "| u:parcel", place: "BEFORE taken_as_only_new", view: "u:Message:_where_is_my_parcel? a:parcel u:parcel"},
	}
}

// aiderSaid is a session of an agent without tools that resends its history behind a map of the repository, textsSaid one whose client
// keeps the texts of a turn alone.
func aiderSaid() []string {
	return []string{"| s:edit u:map a:Ok u:1 -> a:1", "| s:edit u:map a:Ok u:1 a:1 u:2 -> a:2"}
}

func textsSaid() []string {
	return []string{"tools=f | s:be u:1 -> c:x", "tools=f | s:be u:1 c:x r:x -> a:1"}
}

// crewSaid is a conversation of a client that sends only what is new, in whose third turn an agent has written the result of its first
// action behind the answer that asks for it.
func crewSaid() []string {
	return append(newSaid(), "| s:crew u:task -> a:Action:_look", "| s:crew u:task a:Action:_look¶Observation:_found -> a:Action:_open")
}

// delegating is a conversation of a client that sends only what is new, in whose second turn another agent is called with a text.
func delegating(more ...string) []string {
	return append([]string{"tools=ask | s:parent u:1 -> a:1", "tools=ask | s:parent u:2 -> c:x=look"}, more...)
}

// handingOff is a conversation of a client that sends only what is new, in whose second turn an agent hands off to another one.
func handingOff(more ...string) []string {
	return append([]string{"tools=hand | s:triage u:1 -> a:1", "tools=hand | s:triage u:2 -> c:x"}, more...)
}

// spell is a word of say in a dialect.
func spell(d wire.Dialect, word string) string {
	if d == dialects.Chat {
		return say(word)
	}
	kind, text, _ := strings.Cut(word, ":")
	switch kind {
	case "a":
		return fmt.Sprintf(`{"type":"message","id":"msg_%s","role":"assistant","content":[{"type":"output_text","text":%q}]}`, text[:min(len(text), 20)], text)
	case "c":
		id, arguments := callOf(text)
		return fmt.Sprintf(`{"type":"function_call","call_id":%q,"name":"f","arguments":%q}`, id, arguments)
	case "r":
		return fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":"result of %s"}`, text, text)
	case "ref":
		return fmt.Sprintf(`{"type":"item_reference","id":%q}`, text)
	case "may":
		return fmt.Sprintf(`{"type":"mcp_approval_request","id":%q,"server_label":"files","name":"f","arguments":"{}"}`, text)
	case "new":
		return fmt.Sprintf(`{"type":%q}`, text)
	case "ok":
		return fmt.Sprintf(`{"type":"mcp_approval_response","approval_request_id":%q,"approve":true}`, text)
	}
	return say(word)
}

// toldIn is the inverse of spell.
func toldIn(t *testing.T, d wire.Dialect, items []wire.Item) string {
	t.Helper()
	if d == dialects.Chat {
		return told(t, items)
	}
	var words []string
	for _, it := range items {
		var m struct {
			Type, Role, ID string
			CallID         string `json:"call_id"`
			Request        string `json:"approval_request_id"`
		}
		if err := json.Unmarshal(it.Raw, &m); err != nil {
			t.Fatal(err)
		}
		switch m.Type {
		case "function_call":
			words = append(words, "c:"+m.CallID)
		case "function_call_output":
			words = append(words, "r:"+m.CallID)
		case "item_reference":
			words = append(words, "ref:"+m.ID)
		case "mcp_approval_request":
			words = append(words, "may:"+m.ID)
		case "mcp_approval_response":
			words = append(words, "ok:"+m.Request)
		case "screen", "scan_call", "scan_call_output":
			words = append(words, "new:"+m.Type)
		default:
			words = append(words, m.Role[:1]+":"+it.Text())
		}
	}
	return strings.Join(words, " ")
}

// ask plays a turn in the notation of shape, and returns its view and its record.
func (l *lab) ask(d wire.Dialect, spelled string) (view string, r turnrecord.Record) {
	l.t.Helper()
	options, words, _ := strings.Cut(spelled, "|")
	words, reply, _ := strings.Cut(words, "->")
	c, more := memory.Call{Scope: scope}, ""
	model, cut := "m", memory.NotAborted
	for option := range strings.FieldsSeq(options) {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "tools":
			var tools []string
			for tool := range strings.SplitSeq(value, ",") {
				if d == dialects.Chat {
					tools = append(tools, fmt.Sprintf(`{"type":"function","function":{"name":%q}}`, tool))
				} else {
					tools = append(tools, fmt.Sprintf(`{"type":"function","name":%q}`, tool))
				}
			}
			more += `,"tools":[` + strings.Join(tools, ",") + `]`
		case "model":
			model = value
		case "format":
			if d == dialects.Chat {
				more += fmt.Sprintf(`,"response_format":{"type":%q}`, value)
			} else {
				more += fmt.Sprintf(`,"text":{"format":{"type":%q}}`, value)
			}
		case "choice":
			more += `,"tool_choice":` + map[bool]string{true: `"required"`, false: `{"type":"function","name":"` + value + `"}`}[value == "required"]
		case "previous":
			more += fmt.Sprintf(`,"previous_response_id":%q`, value)
		case "side":
			c.Side = value
		case "cut":
			cut = map[string]memory.Aborted{"client": memory.AbortedByClient, "upstream": memory.AbortedByUpstream}[value]
		case "history":
			c.History = map[string]memory.History{"client": memory.HistoryClient, "server": memory.HistoryServer}[value]
		}
	}
	var items []string
	for word := range strings.FieldsSeq(words) {
		items = append(items, spell(d, word))
	}
	list := map[wire.Dialect]string{dialects.Chat: "messages", dialects.Responses: "input"}[d]
	req, err := wire.Parse(d, fmt.Appendf(nil, `{"model":%q%s,%q:[%s]}`, model, more, list, strings.Join(items, ",")))
	if err != nil {
		l.t.Fatal(err)
	}
	c.Request = req
	turn, err := l.m.Begin(l.t.Context(), c)
	if err != nil {
		l.t.Fatal(err)
	}
	l.replies++
	a := memory.Answer{HTTPStatus: 200, Aborted: cut, Reply: wire.Reply{Complete: cut == memory.NotAborted, ID: fmt.Sprintf("resp_%d", l.replies)}}
	a.Reply.Choices = [][]wire.Item{nil}
	says := strings.TrimSpace(reply) != "-"
	for word := range strings.FieldsSeq(reply) {
		if !says {
			break
		}
		it, err := wire.ParseItem(d, []byte(spell(d, word)))
		if err != nil {
			l.t.Fatal(err)
		}
		a.Reply.Choices[0] = append(a.Reply.Choices[0], it)
	}
	if says && len(a.Reply.Choices[0]) == 0 {
		it, err := wire.ParseItem(d, []byte(spell(d, "a:answer")))
		if err != nil {
			l.t.Fatal(err)
		}
		a.Reply.Choices[0] = []wire.Item{it}
	}
	view = strings.ReplaceAll(toldIn(l.t, d, turn.View), "\n", "¶")
	turn.Commit(a)
	record, err := l.m.TurnRecord(l.t.Context(), scope, turn.ID)
	if err == nil {
		err = json.Unmarshal(record, &r)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	shown, err := l.m.TurnView(l.t.Context(), scope, turn.ID)
	if err != nil {
		l.t.Fatal(err)
	}
	if shown := strings.ReplaceAll(toldIn(l.t, d, shown), "\n", "¶"); shown != view && !strings.Contains(view, "ref:") { // that shows what it refers to
		l.t.Errorf("%s\nis shown as %s\n       sent %s", spelled, shown, view)
	}
	return view, r
}

// placeOf is how a record says that its request was placed.
func placeOf(r *turnrecord.Record) string {
	place := "LINE"
	switch {
	case r.Side != "":
		place = "SIDE"
	case r.Alone:
		place = "ALONE"
	case r.View.Stored:
		place = "BEFORE"
	}
	return place + " " + r.Rule
}

// Requests of real clients: each is placed as its client means it, in both dialects, and sees only its own
// conversation.
func TestShapesOfClients(t *testing.T) {
	t.Parallel()
	shapes := clientShapes()
	if len(shapes) < 40 {
		t.Errorf("%d shapes", len(shapes))
	}
	for _, s := range shapes {
		for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
			if s.only.Known() && s.only != d {
				continue
			}
			t.Run(s.client+": "+s.name+" "+d.String(), func(t *testing.T) {
				t.Parallel()
				l := newLab(t, memory.Options{})
				for _, turn := range s.said {
					l.ask(d, turn)
				}
				view, record := l.ask(d, s.asks)
				want := s.view
				if _, words, _ := strings.Cut(s.asks, "|"); want == "" {
					want = strings.TrimSpace(words)
				}
				if got := placeOf(&record); got != s.place || view != want {
					t.Errorf("%s\n got %s: %s\nwant %s: %s", s.asks, got, view, s.place, want)
				}
			})
		}
	}
}
