"""Byte-level BPE with Qwen's pre-tokeniser, NFC and special tokens: 4096 ids in all.
  python train_tokenizer.py CORPUS.txt OUTDIR [vocab]"""
import json, os, sys
from tokenizers import Tokenizer, Regex, models, normalizers, pre_tokenizers, decoders, trainers, AddedToken

SPLIT = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
           "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
PLAIN = ["<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
         "<tool_response>", "</tool_response>", "<think>", "</think>"]
SPECIAL2 = ["<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>", "<|audio_pad|>"]
ALL = SPECIAL + PLAIN + SPECIAL2

if __name__ == "__main__":
    corpus, out, vocab = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 4096
    os.makedirs(out, exist_ok=True)
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    t.post_processor = None
    import re
    cut = re.compile("|".join(re.escape(x) for x in ALL))

    def pieces():
        for d in open(corpus, encoding="utf-8").read().split("<|endoftext|>"):
            for p in cut.split(d):
                if p:
                    yield p
    tr = trainers.BpeTrainer(vocab_size=vocab - len(ALL), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False, min_frequency=2)
    t.train_from_iterator(pieces(), tr)
    assert t.get_vocab_size() == vocab - len(ALL), t.get_vocab_size()
    t.add_tokens([AddedToken(x, special=x not in PLAIN, normalized=False) for x in ALL])
    assert t.token_to_id("<|endoftext|>") == vocab - len(ALL)
    t.save(os.path.join(out, "tokenizer.json"), pretty=False)
    j = json.load(open(os.path.join(out, "tokenizer.json"), encoding="utf-8"))
    json.dump(j, open(os.path.join(out, "tokenizer.json"), "w", encoding="utf-8"), ensure_ascii=False, separators=(",", ":"))
    dec = {str(t.token_to_id(x)): {"content": x, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": x not in PLAIN} for x in ALL}
    cfg = {"add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": dec, "bos_token": None, "clean_up_tokenization_spaces": False,
           "eos_token": "<|im_end|>", "errors": "replace", "model_max_length": 32768, "pad_token": "<|endoftext|>", "split_special_tokens": False,
           "tokenizer_class": "Qwen2Tokenizer", "unk_token": None}
    json.dump(cfg, open(os.path.join(out, "tokenizer_config.json"), "w", encoding="utf-8"), ensure_ascii=False, indent=1)
    tpl = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "demo", "chat_template.jinja")
    if os.path.exists(tpl):
        open(os.path.join(out, "chat_template.jinja"), "w", encoding="utf-8").write(open(tpl, encoding="utf-8").read())
    print("vocab", t.get_vocab_size(), "tokenizer.json", os.path.getsize(os.path.join(out, "tokenizer.json")))
    for s in ("assistant", "Hello!", "नमस्ते", "🦊", "strawberry"):
        print(repr(s), t.encode(s).ids)
