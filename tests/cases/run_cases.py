#!/usr/bin/env python3
"""Judges an engine on the field cases: what went wrong for users of local servers, turned into inputs with a
mechanical judgement.

    run_cases.py cases.json --lily build/lily --model models/demo [--only TC01,TC03] [--kind tool-calls] [--jobs 2]

docs/scripted-replies.md is the contract of the entry points that the cases use. Servers are started on free ports
and ended by their process id. The tokenizer cases need the package `tokenizers`; nothing else is needed but Python.
A case is skipped when it needs something that is not expected: --without takes names off what is, --have adds some.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from runner.main import main  # noqa: E402

sys.exit(main())
