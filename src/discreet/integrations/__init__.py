"""discreet inside other people's programs. Nothing here is loaded until it is named.

lightning.py     fit a LightningModule privately, with its Trainer
transformers.py  a Hugging Face Trainer that trains privately, adapters (PEFT) included
"""
