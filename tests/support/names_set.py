"""Labelled texts for the search for names: persons stand in `« »`, everything else is nobody.

Written before the rules of `code_words.py`, in two halves: the rules were made while looking at `SEEN`; of
`UNSEEN` only the sums were looked at. The README of the input guardrails has what was found.
"""
# ruff: noqa: E501  # one sample a line

from __future__ import annotations

import re
from typing import NamedTuple

_PERSON = re.compile("«(.+?)»", re.DOTALL)


class Labelled(NamedTuple):
    text: str
    persons: tuple[tuple[int, int], ...]
    """Where each starts and ends, in order."""


def labelled(marked: str) -> Labelled:
    text, persons = "", list[tuple[int, int]]()
    end = 0
    for mark in _PERSON.finditer(marked):
        text += marked[end : mark.start()]
        persons.append((len(text), len(text) + len(mark[1])))
        text += mark[1]
        end = mark.end()
    return Labelled(text + marked[end:], tuple(persons))


SEEN: dict[str, tuple[str, ...]] = {
    "software": (
        "How do I group rows in Pandas by two columns?",
        "My Jenkins build fails after the update, how do I restart Jenkins?",
        "Should I use Django or Flask for this?",
        "Kafka loses messages when the consumer restarts.",
        "Is Cassandra faster than Redis?",
        "Why does `Celery` drop tasks when RabbitMQ restarts?",
        "Does Keras run on top of TensorFlow or of Theano?",
        "How do I deploy with Ansible and Terraform on Debian?",
        "We run Jenkins 2.401 behind nginx; the Jenkins plugin for Slack stopped working.",
        "Install Django 4.2 with pip and run the Django tests.",
        "In Cassandra, a partition key decides which node holds the row.",
        "Upgrade Jenkins first, then the agents.",
        "A Kafka topic has partitions; a Kafka broker holds some of them.",
        "Why is Vagrant slower than Docker on my laptop?",
        "Write a Dockerfile that runs Gunicorn behind Traefik.",
        "docker run -it --name jenkins jenkins/jenkins:lts",
        "kubectl get pods -n jenkins",
        "pip install pandas django celery\nThen open Django and say hello.",
    ),
    "code": (
        "```python\nimport pandas as pd\nfrom django.db import models\n\nclass Invoice(models.Model):\n    customer = models.ForeignKey(Customer, on_delete=models.CASCADE)\n```",
        "public class Maria { private final String name; public Maria(String name) { this.name = name; } }",
        "const Alice = new Robot(3); Alice.greet();",
        "def merge(left, right):\n    result = left.merge(right, on='id')\n    return result.Total",
        'Traceback (most recent call last):\n  File "/srv/app.py", line 12, in main\n    raise ValueError("x")',
        "useEffect(() => { fetchUser(id).then(setUser) }, [id]); return <Avatar user={user} />",
        "SELECT Customer.Name FROM Customer JOIN Orders ON Orders.CustomerID = Customer.ID;",
        'impl Display for Jordan { fn fmt(&self, f: &mut Formatter) -> Result { write!(f, "{}", self.0) } }',
        "from jenkins import Jenkins\nserver = Jenkins('http://localhost:8080')\nserver.get_whoami()",
        "x = Dense(64)(x); x = Dropout(0.5)(x); model = Model(inputs, x)",
        "for (const Victor of list) { Victor.push(1) }",
        "MyParser parser = new MyParser(); parser.parse(stanley_cup);",
        "export default function Carter({ items }) { return items.map(renderItem) }",
        "Use `getUserName` and `Martin.build()` in the test, not `setUpAll`.",
        "struct Node { Node *next; int value; }; Node *head = NULL;",
        'resource "aws_instance" "web" { ami = var.ami }',
    ),
    "prose": (
        "My name is «John Smith» from the billing team.",
        "Please tell «Maria Keller» that the report is late.",
        "We met «Peter Miller» (CEO) yesterday.",
        "As shown by «Peter Miller»[12], this works.",
        "Dear «Lucia van der Berg»,\n\nthank you for your letter.\n\nYours,\n«Tom Brandt»",
        "i spoke with «maria keller» and «oliver stone» on monday",
        "WHAT DID «ANGELA MERKEL» SAY TO «BARACK OBAMA»?",
        "Is «Sarah» still on holiday? «Michael» asked me.",
        "Please upgrade «Emma» to business class.",
        "Can «Maria» build the report by Friday?",
        "Let «Emma» package it for the customer.",
        "Best wishes: «Maria» =)",
        "| name | town |\n| «Mary Brown» | Berlin |",
        "Ask «Jenkins» whether his daughter has arrived.",
        "«Sebastian Siewior»: could you look at the patch of «Thomas Gleixner»?",
        "The doctor told «James McDonald» and «Anna DeVries» to rest.",
        "«Julia» wants to learn Rust, «Ruby Walker» prefers Go.",
    ),
    "marks": (
        "customer=«Maria Keller» {id=4}",
        "{«Maria Keller»} signed; see «John Smith»).",
        "[«Maria Keller»](https://example.org/maria)",
        "name={«Maria Keller»}, role={admin}",
        "user: «Maria Keller»={active}, manager=«John Smith»",
        "(spoken by «John Smith»).Then he left.",
        "Owner=«Peter Miller»; backup=«Sarah Connor»",
        "assigned({«Maria Keller»}).",
        "user name=«O'Brien» was logged in",
    ),
    "persons in code": (
        "# Author: «Johann Wagner»\ndef add(a, b):\n    return a + b",
        'let user = { name: "«Maria Keller»", age: 42 };',
        "SELECT * FROM users WHERE name = '«Alice Cooper»' AND city = 'Paris';",
        '{"author": {"name": "«Peter Miller»", "mail": null}}',
        "author: «Maria Keller»\nreviewer: «Tom Brandt»",
        "/* written by «Erik Johansson», 2019 */\nint main(void) { return 0; }",
        "```yaml\ncontact:\n  name: «Maria Keller»\n  role: owner\n```",
        'users = [User("«Emma Thompson»"), User("«Daniel Craig»")]',
        'git commit -m "Fix build" --author="«Lena Fischer» <lena@x.org>"',
        "// TODO(«Michael Scott»): remove this\nreturn cache.get(key);",
    ),
}

UNSEEN: dict[str, tuple[str, ...]] = {
    "software": (
        "How can I plot a histogram in Matplotlib with data from Pandas?",
        "Jenkins shows an old commit in the pipeline.",
        "What is the difference between Hibernate and Mybatis?",
        "How does Kafka compare to Pulsar for event streaming?",
        "My Django app returns 500 when Celery is down.",
        "Can I use Laravel with Vue?",
        "Gradle can't find the Kotlin plugin.",
        "The Cassandra cluster lost two nodes; how do I repair it?",
        "Use Jenkins for the nightly build and Travis for pull requests.",
        "Where does Puppet store its certificates?",
        "Set up Grafana and Loki with Helm.",
        "Is Maven or Gradle better for a multi-module project?",
        "Can Selenium click a hidden button?",
        "We migrated from Jenkins to Tekton, and Jenkins jobs still run.",
        "Explain Bayes, Markov chains and Monte Carlo in one line each.",
        "apt install postgresql\nsudo systemctl restart jenkins",
        "What does Sphinx do with a Markdown file?",
        "Bump Django from 3.2.1 to 4.0 in requirements.txt.",
    ),
    "code": (
        "class Harrison(BaseModel):\n    title: str\n    Parent: Optional[Harrison] = None",
        "import React from 'react'; const Morgan = () => <div>hi</div>; export default Morgan;",
        "func (s *Spencer) Close() error { return s.conn.Close() }",
        "df = pd.read_csv('a.csv'); df.groupby(['Region', 'Team']).sum()",
        "val Taylor: Int = 3; println(Taylor.toString())",
        "interface Parker extends Node { left: Parker | null; right: Parker | null }",
        "assert Logan.find(1) == Logan(id=1)",
        "@Entity class Bradley { @Id Long id; @OneToMany List<Bradley> children; }",
        "try { await Owen.save() } catch (e) { console.error(e) }",
        "use std::collections::HashMap; let mut Clyde = HashMap::new();",
        'if __name__ == "__main__":\n    app = Flask(__name__)\n    app.run(debug=True)',
        "ERROR [main] org.apache.Kafka.Broker - Failed to start; retry=3",
        "The `Simpson.integrate()` call and the `Newton` class are slow.",
        "CREATE TABLE Holmes (id INT PRIMARY KEY, Watson VARCHAR(20));",
    ),
    "prose": (
        "Could you write a birthday card for «Hannah Schmidt»?",
        "«David» and «Emily» got married in June.",
        "Summarise the email that «Robert Chen» sent to «Priya Patel».",
        "The plaintiff, «William Harris», sued his landlord.",
        "in «Keller»'s report the numbers are wrong",
        "My colleague «Jenkins» is ill; «Travis» takes over his shift.",
        "Was it «Ngozi Adeyemi» who fixed the server, or «Li Wei»?",
        "Regards,\n«Christopher Nolan»\nHead of Sales",
        "my boss «karen walker» wants the slides",
        "«Django Reinhardt» was a guitarist.",
        "«Ada Lovelace» wrote notes on the engine of «Charles Babbage».",
    ),
    "marks": (
        "{{ «Hannah Schmidt» }} is the reviewer",
        "lead=«Robert Chen» {team=3}, deputy=«Priya Patel»",
        "(signed: «William Harris»).Next page",
        "<td>«Emily Watson»</td><td>12</td>",
        "patient:=«David Brown»;ward=3",
        "call(«Robert Chen»).",
        "«Hannah Schmidt»{admin}, «Laura Palmer»{guest}",
    ),
    "persons in code": (
        "# Copyright (c) 2014 «Rebecca Stone»\nimport os",
        "const owner = '«Laura Palmer»'; // she pays",
        "INSERT INTO staff (name) VALUES ('«George Clooney»'), ('«Kate Winslet»');",
        '{"patient": "«William Harris»", "ward": 3}',
        "```\nFrom: «Robert Chen»\nTo: «Priya Patel»\nSubject: invoice\n```",
        "<person><first>«Emily»</first></person>",
        'print("Hello «Laura Palmer»")  # greets',
        "-- reviewed by «Steven Wright»\nSELECT 1;",
        "assignee: «Laura Palmer»   # on leave\nstatus: open",
    ),
}
