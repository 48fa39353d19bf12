import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("REMORA_URL", "http://127.0.0.1:8080/v1"),
    default_headers={"X-Session-Id": "python"},
)


def ask(text, **options):
    messages = [{"role": "user", "content": text}]
    answer = client.chat.completions.create(model="gpt-5-mini", messages=messages, **options)
    return answer.choices[0].message.content


ask("My name is Ada.")
print(ask("What is my name?"))
# A server of many users names the session with each request.
print(ask("What is my name?", extra_headers={"X-Session-Id": "python-other"}))
